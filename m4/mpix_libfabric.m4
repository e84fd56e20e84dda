# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors

# MPIX_LIBFABRIC: --with-libfabric=auto|yes|no|DIR. HAVE_LIBFABRIC, LIBFABRIC_CPPFLAGS, LIBFABRIC_LIBS
AC_DEFUN([MPIX_LIBFABRIC], [
  AC_ARG_WITH([libfabric], [AS_HELP_STRING([--with-libfabric=auto|yes|no|DIR],
    [libfabric: installed in DIR, or where the compiler looks @<:@auto@:>@])], [], [with_libfabric=auto])
  mpix_fabric= mpix_why="fi_getinfo does not compile and link"
  LIBFABRIC_CPPFLAGS= LIBFABRIC_LIBS=-lfabric
  AS_IF([test "x$with_libfabric" != xno], [
    AS_CASE([$with_libfabric], [yes|auto], [], [
      AS_IF([test ! -e "$with_libfabric/include/rdma/fabric.h"],
        [AC_MSG_ERROR([--with-libfabric=$with_libfabric: no include/rdma/fabric.h there])])
      LIBFABRIC_CPPFLAGS="-I$with_libfabric/include"
      LIBFABRIC_LIBS="-L$with_libfabric/lib -lfabric"
      AC_DEFINE_UNQUOTED([LIBFABRIC_DIR], ["$with_libfabric"], [where libfabric is looked for first])])
    mpix_save_CPPFLAGS=$CPPFLAGS mpix_save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $LIBFABRIC_CPPFLAGS" LIBS="$LIBFABRIC_LIBS $LIBS"
    AC_MSG_CHECKING([for libfabric])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <rdma/fabric.h>]],
        [[fi_info* info; return fi_getinfo(FI_VERSION(1, 11), 0, 0, 0, 0, &info);]])],
      [mpix_fabric="yes"
       AS_CASE([$with_libfabric], [yes|auto], [], [mpix_fabric="yes ($with_libfabric)"])
       AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])])
    CPPFLAGS=$mpix_save_CPPFLAGS LIBS=$mpix_save_LIBS
  ])
  MPIX_CONCLUDE([libfabric], [mpix_fabric], [mpix_why])
  AS_IF([test "x$mpix_fabric" != x], [AC_DEFINE([HAVE_LIBFABRIC], [1], [libfabric is there])])
  AM_CONDITIONAL([HAVE_LIBFABRIC], [test "x$mpix_fabric" != x])
  AC_SUBST([LIBFABRIC_CPPFLAGS])
  AC_SUBST([LIBFABRIC_LIBS])
  AC_SUBST([libfabric_found])
])
