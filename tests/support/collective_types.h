// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

/// The predefined types and operations of MPI's reductions (MPI 3.1, section 5.9), and what each pair computes, on the
/// host, element by element: what collectives on streams are compared with.
namespace test {

enum class Class { c_integer, fortran_integer, floating, logical, complex, byte, multi_language, pair };
enum class Function { max, min, sum, prod, land, lor, lxor, band, bor, bxor, maxloc, minloc };

struct Op {
  const char* name;
  MPI_Op handle;
  Function function;
};

struct Type {
  const char* name;
  MPI_Datatype handle;
  std::size_t extent;  ///< of an element; what an element consists of may be less
  Class of;
  bool host_only;  ///< long double, and what contains it
  /// A value from a random number, such that the function of many neither overflows nor is always the same.
  void (*generate)(void* to, std::uint64_t random, Function function);
  /// *result = *result op *operand
  void (*combine)(void* result, const void* operand, Function function);
  /// The same bits, holes left out.
  bool (*same)(const void* one, const void* other);
  /// How far the two are from each other, and |one|; of numbers that are rounded. Else null.
  double (*distance)(const void* one, const void* other);
  double (*magnitude)(const void* one);
};

const std::vector<Op>& all_ops();
/// Those that this MPI has.
const std::vector<Type>& all_types();
const Type& type_of(MPI_Datatype handle);
const Op& op_of(MPI_Op handle);

/// MPI allows it, and the device in use has it.
bool is_valid(const Op& op, const Type& type);
/// Results depend on the order of the operands.
bool is_rounded(const Op& op, const Type& type);

}  // namespace test
