# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors

# What benchmarks/peers and benchmarks/dev compare libmpix with. The library itself uses none of it.

# MPIX_NCCL: --with-nccl=auto|yes|no|DIR. HAVE_NCCL, HAVE_NCCL_RMA, NCCL_CPPFLAGS, NCCL_LIBS
AC_DEFUN([MPIX_NCCL], [
  AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl=auto|yes|no|DIR],
    [NCCL, for benchmarks/peers: installed in DIR, or where the compiler looks @<:@auto@:>@])],
    [], [with_nccl=auto])
  MPIX_PEER([nccl], [NCCL], [nccl.h], [nccl],
            [int version; return ncclGetVersion(&version) == ncclSuccess ? 0 : 1;])
  mpix_nccl_rma=
  AS_IF([test "x$mpix_nccl" != x], [
    MPIX_PEER_COMPILES([$NCCL_CPPFLAGS], [$NCCL_LIBS], [nccl.h],
      [return ncclPutSignal(0, 0, ncclChar, 0, 0, 0, 0, 0, 0, 0, 0) == ncclSuccess ? 0 : 1;],
      [mpix_nccl_rma=yes; nccl_found="$nccl_found, one-sided calls too"],
      [nccl_found="$nccl_found, without one-sided calls"])
  ])
  AM_CONDITIONAL([HAVE_NCCL_RMA], [test "x$mpix_nccl_rma" != x])
])

# MPIX_NVSHMEM: --with-nvshmem=auto|yes|no|DIR. HAVE_NVSHMEM, NVSHMEM_CPPFLAGS, NVSHMEM_LIBS
# Its host library is enough for calls on streams. For calls in kernels: HAVE_NVSHMEM_DEVICE, NVSHMEM_DEVICE_LIBS
AC_DEFUN([MPIX_NVSHMEM], [
  AC_ARG_WITH([nvshmem], [AS_HELP_STRING([--with-nvshmem=auto|yes|no|DIR],
    [NVSHMEM, for benchmarks/peers and benchmarks/dev: installed in DIR, or where the compiler looks @<:@auto@:>@])],
    [], [with_nvshmem=auto])
  MPIX_PEER([nvshmem], [NVSHMEM], [nvshmem_host.h], [nvshmem_host],
            [nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER; return nvshmemx_get_uniqueid(&id);])
  mpix_nvshmem_device= NVSHMEM_DEVICE_LIBS=
  AS_IF([test "x$mpix_nvshmem" != x], [MPIX_NVSHMEM_DEVICE])
  AM_CONDITIONAL([HAVE_NVSHMEM_DEVICE], [test "x$mpix_nvshmem_device" != x])
  AC_SUBST([NVSHMEM_DEVICE_LIBS])
])

# Compiles and links a kernel that calls it, as the rules of benchmarks/sources.am do.
AC_DEFUN([MPIX_NVSHMEM_DEVICE], [
  AS_CASE([$with_nvshmem], [yes|auto], [NVSHMEM_DEVICE_LIBS=-lnvshmem_device],
    [for mpix_lib in "$with_nvshmem"/lib "$with_nvshmem"/lib64; do
       AS_IF([test -e "$mpix_lib/libnvshmem_device.a"], [
         NVSHMEM_DEVICE_LIBS=$mpix_lib/libnvshmem_device.a
         break])
     done])
  AC_MSG_CHECKING([for nvshmem in kernels])
  cat > conftest.cu <<'_EOF'
#include <nvshmem.h>
#include <nvshmemx.h>
__global__ void kernel(void* to, const void* from, uint64_t* signal) {
  nvshmemx_putmem_signal_nbi_block(to, from, 8, signal, 1, NVSHMEM_SIGNAL_SET, 0);
}
int main() {
  void* arguments@<:@3@:>@ = {};
  return nvshmemx_collective_launch((const void*)kernel, dim3(1), dim3(1), arguments, 0, 0);
}
_EOF
  AS_IF([test "x$NVSHMEM_DEVICE_LIBS" != x &&
         $NVCC -ccbin "${CXX%% *}" $CXX_STD $NVCC_GENCODE -rdc=true $NVSHMEM_CPPFLAGS \
           -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1 &&
         $NVCC -ccbin "${CXX%% *}" $NVCC_GENCODE -dlink conftest.o $NVSHMEM_DEVICE_LIBS \
           -o conftest-linked.o >&AS_MESSAGE_LOG_FD 2>&1 &&
         $CXX conftest.o conftest-linked.o $NVSHMEM_DEVICE_LIBS $NVSHMEM_LIBS $CUDA_LIBS \
           -o conftest$EXEEXT >&AS_MESSAGE_LOG_FD 2>&1],
    [AC_MSG_RESULT([yes])
     mpix_nvshmem_device=yes nvshmem_found="$nvshmem_found, in kernels too"],
    [AC_MSG_RESULT([no])
     nvshmem_found="$nvshmem_found, not in kernels"])
  rm -f conftest.cu conftest.o conftest-linked.o conftest$EXEEXT
])

# MPIX_PEER(PACKAGE, PREFIX, HEADER, LIBRARY, PROGRAM)
AC_DEFUN([MPIX_PEER], [
  mpix_$1= mpix_why=
  $2_CPPFLAGS= $2_LIBS=
  AS_IF([test "x$mpix_cuda" = x && test "x$with_$1" != xno], [mpix_why="it needs CUDA"],
        [test "x$with_$1" != xno], [
    AS_CASE([$with_$1], [yes|auto], [$2_LIBS=-l$4], [
      $2_CPPFLAGS="-isystem $with_$1/include"
      # Python packages have the library under the name of its ABI alone
      for mpix_lib in "$with_$1"/lib/lib$4.so "$with_$1"/lib64/lib$4.so "$with_$1"/lib/lib$4.so.*; do
        AS_IF([test -e "$mpix_lib"], [
          $2_LIBS="$mpix_lib -Wl,-rpath,`AS_DIRNAME(["$mpix_lib"])`"
          break])
      done])
    AC_MSG_CHECKING([for $1])
    MPIX_PEER_COMPILES([$$2_CPPFLAGS], [$$2_LIBS], [$3], [$5],
      [mpix_$1=yes
       AS_CASE([$with_$1], [yes|auto], [], [mpix_$1="yes ($with_$1)"])
       AC_MSG_RESULT([yes])],
      [mpix_why="$3 and lib$4 do not compile and link"
       AC_MSG_RESULT([no])])
  ])
  MPIX_CONCLUDE([$1], [mpix_$1], [mpix_why])
  AM_CONDITIONAL([HAVE_$2], [test "x$mpix_$1" != x])
  AC_SUBST([$2_CPPFLAGS])
  AC_SUBST([$2_LIBS])
])

# MPIX_PEER_COMPILES(CPPFLAGS, LIBS, HEADER, PROGRAM, THEN, ELSE)
AC_DEFUN([MPIX_PEER_COMPILES], [
  mpix_save_CPPFLAGS=$CPPFLAGS mpix_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $1 $CUDA_CPPFLAGS" LIBS="$2 $CUDA_LIBS $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <$3>]], [[$4]])],
    [CPPFLAGS=$mpix_save_CPPFLAGS LIBS=$mpix_save_LIBS
     $5],
    [CPPFLAGS=$mpix_save_CPPFLAGS LIBS=$mpix_save_LIBS
     $6])
])
