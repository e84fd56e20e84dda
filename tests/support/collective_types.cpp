// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "support/collective_types.h"

#include <stdexcept>
#include <type_traits>

#include "support/collective_elements.h"
#include "support/device.h"

namespace test {
namespace {

template <class T>
constexpr bool is_long_double = std::is_same_v<T, long double>;

template <class T>
Type integer(const char* name, MPI_Datatype handle, Class of = Class::c_integer) {
  return {name, handle, sizeof(T), of, false, generate_integer<T>, combine_integer<T>, same_value<T>, nullptr, nullptr};
}
template <class T>
Type logical(const char* name, MPI_Datatype handle) {
  return {name,          handle,  sizeof(T), Class::logical, false, generate_logical<T>, combine_logical<T>,
          same_value<T>, nullptr, nullptr};
}
template <class T>
Type floating(const char* name, MPI_Datatype handle) {
  return {name,
          handle,
          sizeof(T),
          Class::floating,
          is_long_double<T>,
          generate_floating<T>,
          combine_floating<T>,
          same_bits<T>,
          floating_distance<T>,
          floating_magnitude<T>};
}
template <class T>
Type complex(const char* name, MPI_Datatype handle) {
  return {name,
          handle,
          sizeof(Complex<T>),
          Class::complex,
          is_long_double<T>,
          generate_complex<T>,
          combine_complex<T>,
          same_complex<T>,
          complex_distance<T>,
          complex_magnitude<T>};
}
template <class T, class I>
Type pair(const char* name, MPI_Datatype handle) {
  return {name,
          handle,
          sizeof(Pair<T, I>),
          Class::pair,
          is_long_double<T>,
          generate_pair<T, I>,
          combine_pair<T, I>,
          same_pair<T, I>,
          nullptr,
          nullptr};
}

#define NAMED(handle) #handle, handle

std::vector<Type> make_types() {
  const Class fortran = Class::fortran_integer, multi = Class::multi_language;
  std::vector<Type> types = {
      integer<int>(NAMED(MPI_INT)),
      integer<long>(NAMED(MPI_LONG)),
      integer<short>(NAMED(MPI_SHORT)),
      integer<unsigned short>(NAMED(MPI_UNSIGNED_SHORT)),
      integer<unsigned>(NAMED(MPI_UNSIGNED)),
      integer<unsigned long>(NAMED(MPI_UNSIGNED_LONG)),
      integer<long long>(NAMED(MPI_LONG_LONG)),
      integer<unsigned long long>(NAMED(MPI_UNSIGNED_LONG_LONG)),
      integer<signed char>(NAMED(MPI_SIGNED_CHAR)),
      integer<unsigned char>(NAMED(MPI_UNSIGNED_CHAR)),
      integer<std::int8_t>(NAMED(MPI_INT8_T)),
      integer<std::int16_t>(NAMED(MPI_INT16_T)),
      integer<std::int32_t>(NAMED(MPI_INT32_T)),
      integer<std::int64_t>(NAMED(MPI_INT64_T)),
      integer<std::uint8_t>(NAMED(MPI_UINT8_T)),
      integer<std::uint16_t>(NAMED(MPI_UINT16_T)),
      integer<std::uint32_t>(NAMED(MPI_UINT32_T)),
      integer<std::uint64_t>(NAMED(MPI_UINT64_T)),
      integer<MPI_Aint>(NAMED(MPI_AINT), multi),
      integer<MPI_Offset>(NAMED(MPI_OFFSET), multi),
      integer<MPI_Count>(NAMED(MPI_COUNT), multi),
      integer<unsigned char>(NAMED(MPI_BYTE), Class::byte),
      integer<MPI_Fint>(NAMED(MPI_INTEGER), fortran),
      integer<std::int8_t>(NAMED(MPI_INTEGER1), fortran),
      integer<std::int16_t>(NAMED(MPI_INTEGER2), fortran),
      integer<std::int32_t>(NAMED(MPI_INTEGER4), fortran),
      integer<std::int64_t>(NAMED(MPI_INTEGER8), fortran),
      logical<bool>(NAMED(MPI_C_BOOL)),
      logical<bool>(NAMED(MPI_CXX_BOOL)),
      logical<MPI_Fint>(NAMED(MPI_LOGICAL)),
      floating<float>(NAMED(MPI_FLOAT)),
      floating<double>(NAMED(MPI_DOUBLE)),
      floating<long double>(NAMED(MPI_LONG_DOUBLE)),
      floating<float>(NAMED(MPI_REAL)),
      floating<double>(NAMED(MPI_DOUBLE_PRECISION)),
      floating<float>(NAMED(MPI_REAL4)),
      floating<double>(NAMED(MPI_REAL8)),
      complex<float>(NAMED(MPI_C_FLOAT_COMPLEX)),
      complex<double>(NAMED(MPI_C_DOUBLE_COMPLEX)),
      complex<long double>(NAMED(MPI_C_LONG_DOUBLE_COMPLEX)),
      complex<float>(NAMED(MPI_CXX_FLOAT_COMPLEX)),
      complex<double>(NAMED(MPI_CXX_DOUBLE_COMPLEX)),
      complex<long double>(NAMED(MPI_CXX_LONG_DOUBLE_COMPLEX)),
      complex<float>(NAMED(MPI_COMPLEX)),
      complex<double>(NAMED(MPI_DOUBLE_COMPLEX)),
      pair<float, int>(NAMED(MPI_FLOAT_INT)),
      pair<double, int>(NAMED(MPI_DOUBLE_INT)),
      pair<long, int>(NAMED(MPI_LONG_INT)),
      pair<int, int>(NAMED(MPI_2INT)),
      pair<short, int>(NAMED(MPI_SHORT_INT)),
      pair<long double, int>(NAMED(MPI_LONG_DOUBLE_INT)),
      pair<float, float>(NAMED(MPI_2REAL)),
      pair<double, double>(NAMED(MPI_2DOUBLE_PRECISION)),
      pair<MPI_Fint, MPI_Fint>(NAMED(MPI_2INTEGER)),
  };
  std::vector<Type> had;
  for (const Type& type : types) {
    if (type.handle == MPI_DATATYPE_NULL) continue;  // this MPI is one without Fortran, or C++
    MPI_Aint low = 0, extent = 0;
    if (MPI_Type_get_extent(type.handle, &low, &extent) == MPI_SUCCESS &&
        static_cast<std::size_t>(extent) == type.extent)
      had.push_back(type);
  }
  return had;
}

}  // namespace

const std::vector<Op>& all_ops() {
  static const std::vector<Op> ops = {
      {NAMED(MPI_MAX), Function::max},   {NAMED(MPI_MIN), Function::min},       {NAMED(MPI_SUM), Function::sum},
      {NAMED(MPI_PROD), Function::prod}, {NAMED(MPI_LAND), Function::land},     {NAMED(MPI_LOR), Function::lor},
      {NAMED(MPI_LXOR), Function::lxor}, {NAMED(MPI_BAND), Function::band},     {NAMED(MPI_BOR), Function::bor},
      {NAMED(MPI_BXOR), Function::bxor}, {NAMED(MPI_MAXLOC), Function::maxloc}, {NAMED(MPI_MINLOC), Function::minloc},
  };
  return ops;
}

const std::vector<Type>& all_types() {
  static const std::vector<Type> types = make_types();
  return types;
}

const Type& type_of(MPI_Datatype handle) {
  for (const Type& type : all_types())
    if (type.handle == handle) return type;
  throw std::logic_error("a type that the table has not");
}

const Op& op_of(MPI_Op handle) {
  for (const Op& op : all_ops())
    if (op.handle == handle) return op;
  throw std::logic_error("an operation that the table has not");
}

bool is_valid(const Op& op, const Type& type) {
  if (type.host_only && !device().is_host()) return false;
  const Class of = type.of;
  const bool is_number =
      of == Class::c_integer || of == Class::fortran_integer || of == Class::multi_language || of == Class::floating;
  switch (op.function) {
    case Function::max:
    case Function::min:
      return is_number;
    case Function::sum:
    case Function::prod:
      return is_number || of == Class::complex;
    case Function::land:
    case Function::lor:
    case Function::lxor:
      return of == Class::c_integer || of == Class::logical;
    case Function::band:
    case Function::bor:
    case Function::bxor:
      return of == Class::byte || (is_number && of != Class::floating);
    case Function::maxloc:
    case Function::minloc:
      return of == Class::pair;
  }
  return false;
}

bool is_rounded(const Op& op, const Type& type) {
  return type.distance && (op.function == Function::sum || op.function == Function::prod);
}

}  // namespace test
