# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors

# MPIX_CUDA: --with-cuda=auto|yes|no|DIR, --with-cuda-arch=LIST. Compiles and links a kernel.
# HAVE_CUDA, NVCC, NVCCFLAGS, NVCC_GENCODE, NVCC_PROGRAM_GENCODE, CUDA_CPPFLAGS, CUDA_LIBS
AC_DEFUN([MPIX_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=auto|yes|no|DIR],
    [the CUDA toolkit: DIR is searched, or PATH and /usr/local/cuda @<:@auto@:>@])], [], [with_cuda=auto])
  AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch=LIST],
    [compute capabilities to build for; the last one also as PTX @<:@"80 90"@:>@])], [], [with_cuda_arch="80 90"])
  AC_ARG_VAR([NVCC], [CUDA compiler])
  AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags @<:@-O2 -g@:>@])
  mpix_cuda= mpix_why=
  AS_IF([test "x$with_cuda" != xno], [
    AS_CASE([$with_cuda],
      [yes|auto], [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])],
      [AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin])])
    AS_IF([test "x$NVCC" = x], [mpix_why="nvcc not found"], [MPIX_CUDA_TRY])
  ])
  MPIX_CONCLUDE([cuda], [mpix_cuda], [mpix_why])
  AS_IF([test "x$mpix_cuda" != x], [AC_DEFINE([HAVE_CUDA], [1], [the CUDA toolkit is there])])
  AM_CONDITIONAL([HAVE_CUDA], [test "x$mpix_cuda" != x])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([CUDA_LIBS])
  AC_SUBST([NVCC_GENCODE])
  AC_SUBST([NVCC_PROGRAM_GENCODE])
])

AC_DEFUN([MPIX_CUDA_TRY], [
  # nvcc says itself where it is: what was found may be a script that calls it.
  echo > conftest.cu
  cuda_dir=`$NVCC --dryrun -c conftest.cu -o conftest.o 2>&1 | sed -n 's/^@%:@\$ TOP=//p'`
  rm -f conftest.cu
  AS_IF([test -f "$cuda_dir/include/cuda_runtime.h"], [], [cuda_dir=`AS_DIRNAME(["$NVCC"])`/..])
  cuda_dir=`cd "$cuda_dir" && pwd`
  AS_IF([test -d "$cuda_dir/lib64"], [cuda_lib=$cuda_dir/lib64], [cuda_lib=$cuda_dir/lib])
  CUDA_CPPFLAGS= CUDA_LIBS="-lcudart_static -ldl -lrt -lpthread"
  AS_IF([test "$cuda_dir" != /usr],
    [CUDA_CPPFLAGS="-isystem $cuda_dir/include"; CUDA_LIBS="-L$cuda_lib $CUDA_LIBS"])
  NVCC_GENCODE=
  for sm in $with_cuda_arch; do
    NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$sm,code=sm_$sm"
  done
  NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$sm,code=compute_$sm"
  MPIX_CUDA_PROGRAMS
  AS_IF([test "x$NVCCFLAGS" = x], [NVCCFLAGS="-O2 -g"])
  AC_MSG_CHECKING([whether $NVCC compiles a kernel for $with_cuda_arch])
  cat > conftest.cu <<'_EOF'
#include <cuda_runtime.h>
#if CUDART_VERSION < 12050
#error CUDA 12.5 or newer is needed
#endif
__global__ void kernel(int* p) { *p = 1; }
int main() { kernel<<<1, 1>>>(nullptr); return cudaGetLastError() == cudaSuccess; }
_EOF
  AS_IF([$NVCC -ccbin "${CXX%% *}" $CXX_STD $NVCC_GENCODE -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1 &&
         $CXX conftest.o $CUDA_LIBS -o conftest$EXEEXT >&AS_MESSAGE_LOG_FD 2>&1],
    [AC_MSG_RESULT([yes])
     MPIX_CUDA_COMPRESS
     mpix_cuda="`$NVCC --version | sed -n 's/.*release \([[0-9.]]*\).*/\1/p'` ($cuda_dir)"],
    [AC_MSG_RESULT([no])
     mpix_why="$NVCC cannot compile and link a kernel, see config.log"])
  rm -f conftest.cu conftest.o conftest$EXEEXT
])

# Tests, benchmarks and examples run where they are built, and take most of the time of a build: they are for the GPU that
# is here, or for the oldest.
AC_DEFUN([MPIX_CUDA_PROGRAMS], [
  NVCC_PROGRAM_GENCODE=$NVCC_GENCODE
  AS_CASE([$with_cuda_arch], [*' '*], [
    sm=`nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>&AS_MESSAGE_LOG_FD | sed -n '1s/^\([[0-9]]*\)\.\([[0-9]]*\)$/\1\2/p'`
    AS_IF([test "x$sm" = x],
      [sm=${with_cuda_arch%% *}; NVCC_PROGRAM_GENCODE="-gencode arch=compute_$sm,code=compute_$sm"],
      [NVCC_PROGRAM_GENCODE="-gencode arch=compute_$sm,code=sm_$sm -gencode arch=compute_$sm,code=compute_$sm"])])
])

# Code for GPUs an eighth as large: it is part of the library, which every program maps. Drivers that CUDA 13 runs on can
# read it; those of CUDA 12 may be older.
AC_DEFUN([MPIX_CUDA_COMPRESS], [
  AC_MSG_CHECKING([whether $NVCC compresses well])
  cat > conftest.cu <<'_EOF'
#include <cuda_runtime.h>
#if CUDART_VERSION < 13000
#error drivers may be too old
#endif
__global__ void kernel(int* p) { *p = 1; }
_EOF
  AS_IF([$NVCC -ccbin "${CXX%% *}" --compress-mode=size -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1],
    [AC_MSG_RESULT([yes])
     NVCC_GENCODE="$NVCC_GENCODE --compress-mode=size"],
    [AC_MSG_RESULT([no])])
])

# MPIX_HIP: --with-hip=auto|yes|no|DIR, --with-hip-arch=LIST. Compiles and links a kernel.
# HAVE_HIP, HIPCC, HIPCCFLAGS, HIP_ARCHFLAGS, HIP_CPPFLAGS, HIP_LIBS
AC_DEFUN([MPIX_HIP], [
  AC_ARG_WITH([hip], [AS_HELP_STRING([--with-hip=auto|yes|no|DIR],
    [HIP: DIR is searched, or PATH and /opt/rocm @<:@auto@:>@])], [], [with_hip=auto])
  AC_ARG_WITH([hip-arch], [AS_HELP_STRING([--with-hip-arch=LIST],
    [targets to build for @<:@gfx90a@:>@])], [], [with_hip_arch=gfx90a])
  AC_ARG_VAR([HIPCC], [HIP compiler])
  AC_ARG_VAR([HIPCCFLAGS], [HIP compiler flags @<:@-O2 -gline-tables-only@:>@])
  mpix_hip= mpix_why=
  AS_IF([test "x$with_hip" != xno], [
    AS_CASE([$with_hip],
      [yes|auto], [AC_PATH_PROG([HIPCC], [hipcc], [], [$PATH$PATH_SEPARATOR/opt/rocm/bin])],
      [AC_PATH_PROG([HIPCC], [hipcc], [], [$with_hip/bin])])
    # The library's own definitions of what hipcc's objects call (hip_library.cpp) would be met by those of a program.
    AS_IF([test "x$HIPCC" = x], [mpix_why="hipcc not found"],
      [test "x$enable_static" = xyes], [mpix_why="not in a static library"],
      [MPIX_HIP_TRY])
  ])
  MPIX_CONCLUDE([hip], [mpix_hip], [mpix_why])
  AS_IF([test "x$mpix_hip" != x], [AC_DEFINE([HAVE_HIP], [1], [HIP is there])])
  AM_CONDITIONAL([HAVE_HIP], [test "x$mpix_hip" != x])
  AC_SUBST([HIP_CPPFLAGS])
  AC_SUBST([HIP_LIBS])
  AC_SUBST([HIP_ARCHFLAGS])
])

AC_DEFUN([MPIX_HIP_TRY], [
  hip_dir=`AS_DIRNAME(["$HIPCC"])`/..
  hip_dir=`cd "$hip_dir" && pwd`
  HIP_CPPFLAGS="-D__HIP_PLATFORM_AMD__=1" HIP_LIBS="-lamdhip64"
  AS_IF([test "$hip_dir" != /usr],
    [HIP_CPPFLAGS="$HIP_CPPFLAGS -isystem $hip_dir/include"; HIP_LIBS="-L$hip_dir/lib $HIP_LIBS"
     AC_DEFINE_UNQUOTED([HIP_DIR], ["$hip_dir"], [where HIP's library is looked for last])])
  HIP_ARCHFLAGS=
  for arch in $with_hip_arch; do HIP_ARCHFLAGS="$HIP_ARCHFLAGS --offload-arch=$arch"; done
  AS_IF([test "x$HIPCCFLAGS" = x], [HIPCCFLAGS="-O2 -gline-tables-only"])
  AC_MSG_CHECKING([whether $HIPCC compiles a kernel for $with_hip_arch])
  cat > conftest.hip <<'_EOF'
#include <hip/hip_runtime.h>
__global__ void kernel(int* p) { *p = 1; }
int main() { kernel<<<1, 1>>>(nullptr); return hipGetLastError() == hipSuccess; }
_EOF
  AS_IF([$HIPCC -x hip $CXX_STD $HIP_ARCHFLAGS $HIP_CPPFLAGS -fPIC -c conftest.hip -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1 &&
         $CXX conftest.o $HIP_LIBS -o conftest$EXEEXT >&AS_MESSAGE_LOG_FD 2>&1],
    [AC_MSG_RESULT([yes]); mpix_hip="yes ($hip_dir)"],
    [AC_MSG_RESULT([no])
     mpix_why="$HIPCC cannot compile and link a kernel, see config.log"])
  rm -f conftest.hip conftest.o conftest$EXEEXT
])
