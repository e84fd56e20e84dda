// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>

#include "wire/reduction.h"

namespace mpix {

/// Types of MPI that no Element stands for.
enum class WideElement : std::uint8_t { long_double, long_double_complex, long_double_int, i128, f128 };

/// What Operation::by_function combines, as far as calls say it to each other (CallWord::function): which operation of
/// MPI, or whether that of the program commutes; and of which type.
namespace said_function {

std::uint32_t of_mpi(Operation operation, WideElement element);
std::uint32_t of_program(bool commutes, Element element);
std::uint32_t of_program(bool commutes, WideElement element);
/// As "MPI_SUM of long double".
std::string text_of(std::uint32_t function);

}  // namespace said_function

const char* name_of(Operation operation);
const char* name_of(Element element);

}  // namespace mpix
