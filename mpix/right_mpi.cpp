// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "right_mpi.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
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

/// Of an MPI library that is loaded, by a name that no other family has.
Family family_of_library(const char* path) {
  void* const handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return Family::unknown;
  const bool is_open_mpi = dlsym(handle, "ompi_mpi_comm_world") != nullptr;
  const bool is_mpich = dlsym(handle, "MPIR_Dup_fn") != nullptr;
  dlclose(handle);
  return is_open_mpi ? Family::open_mpi : is_mpich ? Family::mpich : Family::unknown;
}

int note_mpi_library(dl_phdr_info* info, std::size_t, void* paths) {
  const std::string path = info->dlpi_name ? info->dlpi_name : "";
  const std::string file = path.substr(path.rfind('/') + 1);
  if (file.rfind("libmpi.so", 0) == 0 || file.rfind("libmpich.so", 0) == 0)
    static_cast<std::vector<std::string>*>(paths)->push_back(path);
  return 0;
}

/// Where a preloaded libmpix has brought its own MPI along, that one answers in place of the program's: as in Python,
/// which loads its MPI late.
void warn_of_another_mpi() {
  std::vector<std::string> paths;
  dl_iterate_phdr(note_mpi_library, &paths);
  for (const std::string& path : paths) {
    const Family found = family_of_library(path.c_str());
    if (found == Family::unknown || found == built_for) continue;
    log(LogLevel::error, "this libmpix was built for " MPI_NAME ", and this process has loaded " + path +
                             " as well: if the program works with that, it needs a libmpix that was built for it");
  }
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
  if (built_for == Family::unknown || found == Family::unknown) return;
  if (found == built_for) {
    warn_of_another_mpi();
    return;
  }
  log(LogLevel::error,
      "this libmpix was built for " MPI_NAME ", and the MPI library of this program is " + version +
          ": libmpix has to be built for each MPI (configure --with-mpi=WRAPPER), and this program to be "
          "linked with, or run under, the one for its own");
  std::fflush(nullptr);
  _exit(1);  // what a destructor might ask of either MPI is not to be trusted
}

}  // namespace mpix
