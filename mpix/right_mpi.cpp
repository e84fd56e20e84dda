// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "right_mpi.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/log.h"
#include "mpi_library.h"

namespace mpix {
namespace {

enum class Family { unknown, mpich, open_mpi };

#if defined(OPEN_MPI)
constexpr Family built_for = Family::open_mpi;
#elif defined(MPICH_VERSION) || defined(MPICH_NUMVERSION) || defined(I_MPI_VERSION)
constexpr Family built_for = Family::mpich;
#else
constexpr Family built_for = Family::unknown;
#endif

Family family_of(const std::string& version) {
  const auto says = [&](const char* name) { return version.find(name) != std::string::npos; };
  if (says("Open MPI") || says("Spectrum MPI")) return Family::open_mpi;
  if (says("MPICH") || says("MVAPICH") || says("Intel(R) MPI")) return Family::mpich;
  return Family::unknown;
}

}  // namespace

std::string mpi_version() {
  // That of another family may be longer than MPI_MAX_LIBRARY_VERSION_STRING of this one.
  std::vector<char> text(65536);
  int length = 0;
  if (PMPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "";
  std::string line(text.data());
  line.resize(std::min(line.find_first_of(",\n"), line.size()));
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

void require_right_mpi() {
  const std::string version = mpi_version();
  const Family found = family_of(version);
  if (built_for == Family::unknown || found == Family::unknown || found == built_for) return;
  log(LogLevel::error,
      "this libmpix was built for " MPI_NAME ", and the MPI library of this program is " + version +
          ": libmpix has to be built for each MPI (configure --with-mpi=WRAPPER), and this program to be "
          "linked with, or run under, the one for its own");
  std::fflush(nullptr);
  _exit(1);  // what a destructor might ask of either MPI is not to be trusted
}

}  // namespace mpix
