// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/said_function.h"

#include <iterator>

#include "wire/collective.h"

namespace mpix {
namespace {

/// In the order of WideElement: operations of MPI, from the first to the last, and the number of the first.
struct OfMpi {
  const char* name;
  Operation first, last;
  std::uint32_t begin;
};
constexpr OfMpi of_wide[] = {{"long double", Operation::sum, Operation::minimum, 0},
                             {"long double complex", Operation::sum, Operation::product, 4},
                             {"MPI_LONG_DOUBLE_INT", Operation::maximum_at, Operation::minimum_at, 6},
                             {"16-byte integers", Operation::sum, Operation::bitwise_xor, 8},
                             {"16-byte floating point", Operation::sum, Operation::minimum, 18}};
constexpr std::uint32_t ends = 22, elements = static_cast<std::uint32_t>(Element::f64_twice) + 1;
static_assert(ends <= CallWord::functions_of_a_kind && elements + std::size(of_wide) <= CallWord::functions_of_a_kind,
              "a word has no room for more");

std::uint32_t of_program(bool commutes, std::uint32_t element) {
  return CallWord::functions_of_a_kind * (commutes ? 1 : 2) + element;
}

}  // namespace

const char* name_of(Operation operation) {
  static const char* const names[] = {"",         "MPI_SUM",    "MPI_PROD",  "MPI_MAX",  "MPI_MIN",
                                      "MPI_LAND", "MPI_LOR",    "MPI_LXOR",  "MPI_BAND", "MPI_BOR",
                                      "MPI_BXOR", "MPI_MAXLOC", "MPI_MINLOC"};
  const auto index = static_cast<std::size_t>(operation);
  return index < sizeof names / sizeof *names ? names[index] : "?";
}

const char* name_of(Element element) {
  static const char* const names[] = {"bytes",
                                      "1-byte integers",
                                      "1-byte unsigned integers",
                                      "2-byte integers",
                                      "2-byte unsigned integers",
                                      "4-byte integers",
                                      "4-byte unsigned integers",
                                      "8-byte integers",
                                      "8-byte unsigned integers",
                                      "4-byte floating point",
                                      "8-byte floating point",
                                      "8-byte complex",
                                      "16-byte complex",
                                      "MPI_FLOAT_INT",
                                      "MPI_DOUBLE_INT",
                                      "MPI_LONG_INT",
                                      "MPI_2INT",
                                      "MPI_SHORT_INT",
                                      "MPI_2REAL",
                                      "MPI_2DOUBLE_PRECISION"};
  const auto index = static_cast<std::size_t>(element);
  return index < sizeof names / sizeof *names ? names[index] : "?";
}

std::uint32_t said_function::of_mpi(Operation operation, WideElement element) {
  const OfMpi& of = of_wide[static_cast<std::size_t>(element)];
  return of.begin + static_cast<std::uint32_t>(operation) - static_cast<std::uint32_t>(of.first);
}

std::uint32_t said_function::of_program(bool commutes, Element element) {
  return mpix::of_program(commutes, static_cast<std::uint32_t>(element));
}

std::uint32_t said_function::of_program(bool commutes, WideElement element) {
  return mpix::of_program(commutes, elements + static_cast<std::uint32_t>(element));
}

std::string said_function::text_of(std::uint32_t function) {
  const std::uint32_t kind = function / CallWord::functions_of_a_kind, rest = function % CallWord::functions_of_a_kind;
  if (kind == 0) {
    for (const OfMpi& of : of_wide) {
      const std::uint32_t operation = static_cast<std::uint32_t>(of.first) + rest - of.begin;
      if (rest >= of.begin && operation <= static_cast<std::uint32_t>(of.last))
        return std::string(name_of(static_cast<Operation>(operation))) + " of " + of.name;
    }
    return "?";
  }
  const char* const element = rest < elements                        ? name_of(static_cast<Element>(rest))
                              : rest < elements + std::size(of_wide) ? of_wide[rest - elements].name
                                                                     : "?";
  return std::string("an operation of the program that ") + (kind == 1 ? "commutes" : "does not commute") + ", of " +
         element;
}

}  // namespace mpix
