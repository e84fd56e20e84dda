// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "operation.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.h"
#include "collective/said_function.h"
#include "errors.h"
#include "runtime.h"

namespace mpix {
namespace {

/// MPI's groups of predefined types.
enum Group : unsigned { integer = 1, floating = 2, logical = 4, complex = 8, byte = 16, pair = 32 };

struct Type {
  MPI_Datatype handle;
  Group group;
  /// Of an integer: of 8 bytes, with a sign or without. Element::bytes: libmpix itself does not combine it.
  Element element;
};

struct Predefined {
  MPI_Op handle;
  const char* name;
  Operation operation;
  unsigned groups;  ///< of types that it takes
};

const std::vector<Predefined>& predefined_operations() {
  static const std::vector<Predefined> all = {
      {MPI_SUM, "MPI_SUM", Operation::sum, integer | floating | complex},
      {MPI_PROD, "MPI_PROD", Operation::product, integer | floating | complex},
      {MPI_MAX, "MPI_MAX", Operation::maximum, integer | floating},
      {MPI_MIN, "MPI_MIN", Operation::minimum, integer | floating},
      {MPI_LAND, "MPI_LAND", Operation::logical_and, integer | logical},
      {MPI_LOR, "MPI_LOR", Operation::logical_or, integer | logical},
      {MPI_LXOR, "MPI_LXOR", Operation::logical_xor, integer | logical},
      {MPI_BAND, "MPI_BAND", Operation::bitwise_and, integer | byte},
      {MPI_BOR, "MPI_BOR", Operation::bitwise_or, integer | byte},
      {MPI_BXOR, "MPI_BXOR", Operation::bitwise_xor, integer | byte},
      {MPI_MAXLOC, "MPI_MAXLOC", Operation::maximum_at, pair},
      {MPI_MINLOC, "MPI_MINLOC", Operation::minimum_at, pair},
  };
  return all;
}

std::vector<Type> list_types() {
  std::vector<Type> all;
  const auto add = [&](Group group, Element element, std::initializer_list<MPI_Datatype> handles) {
    for (const MPI_Datatype handle : handles)
      if (handle != MPI_DATATYPE_NULL) all.push_back({handle, group, element});  // null: MPI knows no Fortran
  };
  add(integer, Element::i64,
      {MPI_INT, MPI_LONG, MPI_SHORT, MPI_LONG_LONG, MPI_SIGNED_CHAR, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T,
       MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8});
  add(integer, Element::u64,
      {MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_UNSIGNED_CHAR, MPI_UINT8_T,
       MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T});
  add(floating, Element::f64,
      {MPI_FLOAT, MPI_DOUBLE, MPI_LONG_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8});
  // Not every MPI knows those of 16 bytes and more.
#ifdef MPI_INTEGER16
  add(integer, Element::i64, {MPI_INTEGER16});
#endif
#ifdef MPI_REAL16
  add(floating, Element::f64, {MPI_REAL16});
#endif
  add(logical, Element::u64, {MPI_C_BOOL, MPI_CXX_BOOL, MPI_LOGICAL});
  add(complex, Element::c64,
      {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX, MPI_CXX_FLOAT_COMPLEX,
       MPI_CXX_DOUBLE_COMPLEX, MPI_CXX_LONG_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX, MPI_COMPLEX8,
       MPI_COMPLEX16});
  add(byte, Element::u64, {MPI_BYTE});
  add(pair, Element::f32_at, {MPI_FLOAT_INT});
  add(pair, Element::f64_at, {MPI_DOUBLE_INT});
  add(pair, Element::i64_at, {MPI_LONG_INT});
  add(pair, Element::i32_at, {MPI_2INT, MPI_2INTEGER});
  add(pair, Element::i16_at, {MPI_SHORT_INT});
  add(pair, Element::f32_twice, {MPI_2REAL});
  add(pair, Element::f64_twice, {MPI_2DOUBLE_PRECISION});
  add(pair, Element::bytes, {MPI_LONG_DOUBLE_INT});
  return all;
}

/// Numbers of one group differ by their size; bytes: there is none of that size.
Element element_of(const Type& type, std::size_t bytes) {
  const auto choose = [bytes](Element of1, Element of2, Element of4, Element of8) {
    return bytes == 1 ? of1 : bytes == 2 ? of2 : bytes == 4 ? of4 : bytes == 8 ? of8 : Element::bytes;
  };
  switch (type.group) {
    case integer:
      if (type.element == Element::i64) return choose(Element::i8, Element::i16, Element::i32, Element::i64);
      return choose(Element::u8, Element::u16, Element::u32, Element::u64);
    case logical:
    case byte:
      return choose(Element::u8, Element::u16, Element::u32, Element::u64);
    case floating:
      return choose(Element::bytes, Element::bytes, Element::f32, Element::f64);
    case complex:
      return bytes == 8 ? Element::c32 : bytes == 16 ? Element::c64 : Element::bytes;
    case pair:
      return type.element;
  }
  return Element::bytes;
}

/// Of what element_of() has no name for.
WideElement wide_element_of(const Type& type) {
  switch (type.group) {
    case complex:
      return WideElement::long_double_complex;
    case pair:
      return WideElement::long_double_int;
    case floating:
      return type.handle == MPI_LONG_DOUBLE ? WideElement::long_double : WideElement::f128;
    case integer:
    case logical:
    case byte:
      break;
  }
  return WideElement::i128;
}

struct OfMpi {
  MPI_Op op;
  MPI_Datatype type;
  std::size_t element_bytes;
};

void reduce_by_mpi(void* context, const void* in, void* inout, std::uint64_t bytes) {
  const OfMpi& of = *static_cast<OfMpi*>(context);
  const int count = static_cast<int>(bytes / of.element_bytes);
  if (PMPI_Reduce_local(in, inout, count, of.type, of.op) != MPI_SUCCESS)
    throw Error(Fault::operation, "MPI_Reduce_local failed");
}

std::string name_of_type(MPI_Datatype type) {
  char name[MPI_MAX_OBJECT_NAME + 1] = "";
  int length = 0;
  if (PMPI_Type_get_name(type, name, &length) == MPI_SUCCESS && length > 0) return name;
  return "a derived datatype";
}

/// Throws where the threads of streams may not call MPI.
void set_function(Reduction& reduction, MPI_Op op, MPI_Datatype type, bool on_host, const char* what) {
  if (!on_host) throw Error(Fault::unsupported, std::string(what) + ": not on a GPU");
  require_threads(std::string(what) + ": the thread of a stream has MPI compute it");
  reduction.operation = Operation::by_function;
  reduction.element = Element::bytes;
  reduction.function = reduce_by_mpi;
  reduction.context = std::make_shared<OfMpi>(OfMpi{op, type, reduction.element_bytes});
}

}  // namespace

Reduction reduction_of(MPI_Op op, MPI_Datatype type, bool on_host) {
  static const std::vector<Type> types = list_types();
  if (op == MPI_OP_NULL || op == MPI_REPLACE || op == MPI_NO_OP)
    throw Error(Fault::operation, "MPI_OP_NULL, MPI_REPLACE and MPI_NO_OP are not operations of a reduction");
  if (type == MPI_DATATYPE_NULL) throw Error(Fault::datatype, "the datatype is MPI_DATATYPE_NULL");
  MPI_Aint lower = 0, extent = 0;
  check(PMPI_Type_get_extent(type, &lower, &extent));
  Reduction reduction;
  reduction.element_bytes = static_cast<std::size_t>(extent);
  const auto& operations = predefined_operations();
  const auto predefined =
      std::find_if(operations.begin(), operations.end(), [op](const Predefined& one) { return one.handle == op; });
  const auto known = std::find_if(types.begin(), types.end(), [type](const Type& one) { return one.handle == type; });
  if (predefined == operations.end()) {
    if (known == types.end())
      throw Error(Fault::unsupported, "an operation of the program on " + name_of_type(type) +
                                          ": a predefined datatype of numbers is needed");
    set_function(reduction, op, type, on_host, "an operation of the program");
    int commutes = 0;
    check(PMPI_Op_commutative(op, &commutes));
    reduction.commutes = commutes != 0;
    const Element element = element_of(*known, reduction.element_bytes);
    reduction.said_function = element != Element::bytes
                                  ? said_function::of_program(reduction.commutes, element)
                                  : said_function::of_program(reduction.commutes, wide_element_of(*known));
    return reduction;
  }
  if (known == types.end())
    throw Error(Fault::operation, std::string(predefined->name) + " of " + name_of_type(type) +
                                      ": a predefined datatype is needed, of those that MPI combines");
  if ((predefined->groups & known->group) == 0)
    throw Error(Fault::operation, "MPI has no " + std::string(predefined->name) + " of " + name_of_type(type));
  reduction.element = element_of(*known, reduction.element_bytes);
  if (reduction.element == Element::bytes) {
    set_function(reduction, op, type, on_host, "a reduction of long double, or of what contains it");
    reduction.said_function = said_function::of_mpi(predefined->operation, wide_element_of(*known));
    return reduction;
  }
  reduction.operation = predefined->operation;
  return reduction;
}

}  // namespace mpix
