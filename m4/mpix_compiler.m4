# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors

# MPIX_CXX17: CXX_STD, the flag that makes the compiler a C++17 one
AC_DEFUN([MPIX_CXX17], [
  CXX_STD=-std=c++17
  AC_MSG_CHECKING([whether $CXX takes $CXX_STD])
  mpix_save_CXXFLAGS=$CXXFLAGS
  CXXFLAGS="$CXXFLAGS $CXX_STD"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <optional>]], [[std::optional<int> x; (void)x;]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([libmpix needs a C++17 compiler; set CXX])])
  CXXFLAGS=$mpix_save_CXXFLAGS
  AC_SUBST([CXX_STD])
])

# MPIX_READS_AHEAD: whether this is g++, which takes a header that it has read before for the header, and reads the
# header where it cannot. Other compilers ask for a flag, or end with an error.
AC_DEFUN([MPIX_READS_AHEAD], [
  AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
    #if !defined(__GNUC__) || defined(__clang__) || defined(__INTEL_COMPILER) || defined(__NVCOMPILER)
    #error "not g++"
    #endif
    ]])], [mpix_reads_ahead=yes], [mpix_reads_ahead=no])
  AM_CONDITIONAL([READS_AHEAD], [test $mpix_reads_ahead = yes])
])

# MPIX_TRY_CXXFLAG(FLAG, VARIABLE): append FLAG to VARIABLE if the compiler takes it
AC_DEFUN([MPIX_TRY_CXXFLAG], [
  AC_MSG_CHECKING([whether $CXX takes $1])
  mpix_save_CXXFLAGS=$CXXFLAGS
  CXXFLAGS="$CXXFLAGS -Werror $1"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
    [AC_MSG_RESULT([yes]); $2="${$2:+$$2 }$1"], [AC_MSG_RESULT([no])])
  CXXFLAGS=$mpix_save_CXXFLAGS
])

# MPIX_WARNINGS: WARN_CXXFLAGS, and WERROR in a git checkout only: a released tarball has to
# build with compilers that warn about things nobody has thought of yet
AC_DEFUN([MPIX_WARNINGS], [
  m4_foreach_w([flag], [-Wall -Wextra -Wpedantic -Wshadow=local -Wnon-virtual-dtor -Woverloaded-virtual
                        -Wsuggest-override -Wcast-qual -Wformat=2 -Wundef -Wvla -Wduplicated-cond
                        -Wlogical-op -Wmissing-declarations],
    [MPIX_TRY_CXXFLAG(flag, [WARN_CXXFLAGS])])
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror],
    [make warnings errors (default: in a git checkout)])], [],
    [AS_IF([test -e "$srcdir/.git"], [enable_werror=yes], [enable_werror=no])])
  AC_SUBST([WARN_CXXFLAGS])
])

# MPIX_SANITIZER: --enable-sanitizer=thread|address, in SANITIZE_FLAGS. Comes after MPIX_WARNINGS:
# sanitized code gets warnings of its own (maybe-uninitialized, tsan), which are not made errors.
AC_DEFUN([MPIX_SANITIZER], [
  AC_ARG_ENABLE([sanitizer], [AS_HELP_STRING([--enable-sanitizer=thread|address],
    [build everything with that sanitizer; address also finds undefined behaviour])],
    [], [enable_sanitizer=no])
  sanitizer=$enable_sanitizer
  SANITIZE_FLAGS=
  AS_CASE([$sanitizer],
    [no], [sanitizer=none],
    [thread], [SANITIZE_FLAGS="-fsanitize=thread"],
    [address], [SANITIZE_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined"],
    [AC_MSG_ERROR([--enable-sanitizer takes thread or address, not "$sanitizer"])])
  AS_IF([test $sanitizer != none], [
    SANITIZE_FLAGS="$SANITIZE_FLAGS -fno-omit-frame-pointer"
    enable_werror=no
    mpix_save_CXXFLAGS=$CXXFLAGS
    CXXFLAGS="$CXXFLAGS $SANITIZE_FLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [],
      [AC_MSG_ERROR([$CXX cannot link with $SANITIZE_FLAGS])])
    CXXFLAGS=$mpix_save_CXXFLAGS
  ], [
    # a sanitized shared library leaves the run time's symbols to the program (clang)
    NO_UNDEFINED="-no-undefined -Wl,-z,defs"
  ])
  AS_IF([test "x$enable_werror" = xyes],
    [WERROR=-Werror; warnings_are="errors"], [WERROR=; warnings_are="not errors"])
  AC_SUBST([WERROR])
  AC_SUBST([sanitizer])
  AC_SUBST([SANITIZE_FLAGS])
  AC_SUBST([NO_UNDEFINED])
])

# MPIX_CATCH2: the test library, version 3 (a library) or 2 (one header); HAVE_CATCH2, CATCH2_LIBS
AC_DEFUN([MPIX_CATCH2], [
  AC_ARG_WITH([catch2], [AS_HELP_STRING([--with-catch2=auto|yes|no],
    [the library that nearly all tests need; without it "make check" fails, unless it is "no" @<:@auto@:>@])],
    [], [with_catch2=auto])
  AC_SUBST([with_catch2])
  CATCH2_LIBS= catch2="none (install Catch2 to run the tests)"
  mpix_save_CXXFLAGS=$CXXFLAGS mpix_save_LIBS=$LIBS
  CXXFLAGS="$CXXFLAGS $CXX_STD"
  AC_MSG_CHECKING([for Catch2])
  AS_IF([test "x$with_catch2" = xno], [catch2="none (--without-catch2)"], [
  LIBS="-lCatch2 $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <catch2/catch_session.hpp>]],
                                  [[return Catch::Session().run();]])],
    [CATCH2_LIBS=-lCatch2 catch2="Catch2 version 3"],
    [AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <catch2/catch.hpp>]], [])],
      [catch2="Catch2 version 2"])])
  ])
  AC_MSG_RESULT([$catch2])
  AS_IF([test "x$with_catch2" = xyes && test "${catch2%% *}" != Catch2],
    [AC_MSG_ERROR([--with-catch2: no Catch2 compiles and links, see config.log])])
  CXXFLAGS=$mpix_save_CXXFLAGS LIBS=$mpix_save_LIBS
  AM_CONDITIONAL([HAVE_CATCH2], [test "${catch2%% *}" = Catch2])
  AC_ARG_ENABLE([unit-tests], [AS_HELP_STRING([--disable-unit-tests],
    [no unit tests, which know no MPI: for a second build, with another MPI])], [], [enable_unit_tests=yes])
  AM_CONDITIONAL([UNIT_TESTS], [test "${catch2%% *}" = Catch2 && test "x$enable_unit_tests" != xno])
  AC_SUBST([CATCH2_LIBS])
  AC_SUBST([catch2])
])
