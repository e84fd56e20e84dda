# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors

# MPIX_MPI: --with-mpi=WRAPPER. The wrapper compiler is only asked for its flags (MPI_CPPFLAGS,
# MPI_LIBS); CXX stays the compiler. Finds the mpiexec that belongs to it (MPIEXEC), the kind of MPI
# (MPI_KIND: mpich, openmpi, other), and which newer calls it has.
AC_DEFUN([MPIX_MPI], [
  AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi=WRAPPER],
    [MPI compiler wrapper to ask for flags, or the directory above its bin
     (default: mpicxx.mpich, mpicxx, mpic++ or mpicxx.openmpi, the first found)])],
    [], [with_mpi=yes])
  AC_ARG_VAR([MPI_CPPFLAGS], [preprocessor flags for MPI, if the wrapper cannot tell them])
  AC_ARG_VAR([MPI_LIBS], [linker flags for MPI, if the wrapper cannot tell them])
  AC_ARG_VAR([MPIEXEC], [command that starts MPI programs, for the tests])
  AC_SUBST([MPI_WRAPPER])

  AS_CASE([$with_mpi],
    [no], [AC_MSG_ERROR([libmpix needs MPI])],
    # plain mpicxx may be either MPI where Debian's alternatives choose: the suffixed name is sure
    [yes], [AC_PATH_PROGS([MPI_WRAPPER], [mpicxx.mpich mpicxx mpic++ mpicxx.openmpi], [no])],
    [AS_IF([test -d "$with_mpi"],
             [AC_PATH_PROGS([MPI_WRAPPER], [mpicxx mpic++ mpicc], [no], [$with_mpi/bin])],
           [test -x "$with_mpi"], [MPI_WRAPPER=$with_mpi],
           [AC_PATH_PROG([MPI_WRAPPER], [$with_mpi], [no])])])
  AS_IF([test "$MPI_WRAPPER" = no && test "x$MPI_LIBS" = x],
    [AC_MSG_ERROR([no MPI compiler wrapper found; use --with-mpi=WRAPPER, or set MPI_CPPFLAGS and MPI_LIBS])])

  AS_IF([test "x$MPI_CPPFLAGS$MPI_LIBS" = x], [
    AC_MSG_CHECKING([what $MPI_WRAPPER adds])
    # its headers as system headers, whose warnings are not ours; without the libraries of the C++
    # bindings, which are gone from the standard
    for word in `$MPI_WRAPPER -show 2>&AS_MESSAGE_LOG_FD | sed 's/ -I/ -isystem/g'`; do
      AS_CASE([$word],
        [-isystem/usr/include|-lmpichcxx|-lmpicxx|-lmpi_cxx], [],
        [-isystem*|-D*], [MPI_CPPFLAGS="$MPI_CPPFLAGS $word"],
        [-L*|-l*|-Wl,*|/*.so|/*.a], [MPI_LIBS="$MPI_LIBS $word"])
    done
    AC_MSG_RESULT([$MPI_CPPFLAGS $MPI_LIBS])
  ])
  MPI_CPPFLAGS="$MPI_CPPFLAGS -DMPICH_SKIP_MPICXX -DOMPI_SKIP_MPICXX"

  mpix_save_CPPFLAGS=$CPPFLAGS mpix_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $MPI_CPPFLAGS" LIBS="$MPI_LIBS $LIBS"
  AC_MSG_CHECKING([whether PMPI_Win_create links])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]],
      [[MPI_Win w; return PMPI_Win_create(0, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w);]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([MPI does not link (see config.log); use --with-mpi=WRAPPER, or set MPI_CPPFLAGS and MPI_LIBS])])

  AC_MSG_CHECKING([which MPI this is])
  cat > conftest.cpp <<'_EOF'
#include <mpi.h>
#if defined(OPEN_MPI)
mpi_name: openmpi OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION
#elif defined(MPICH_VERSION)
mpi_name: mpich MPICH_VERSION
#else
mpi_name: other
#endif
_EOF
  set x `$CXX -E -P $CPPFLAGS conftest.cpp 2>&AS_MESSAGE_LOG_FD | sed -n 's/^mpi_name: *//p' | tr -d '"'`
  rm -f conftest.cpp
  shift
  MPI_KIND=$[]1; shift
  mpi_version=`AS_ECHO(["$[]*"]) | tr -d ' '`
  AS_CASE([$MPI_KIND], [openmpi], [mpi_name="Open MPI"], [mpich], [mpi_name="MPICH"],
                       [mpi_name="MPI"])
  mpi_name="$mpi_name $mpi_version"
  AC_MSG_RESULT([$mpi_name])
  AC_DEFINE_UNQUOTED([MPI_NAME], ["$mpi_name"], [the MPI library that this was configured for])
  mpix_for_mpich=0 mpix_for_open_mpi=0
  AS_CASE([$MPI_KIND], [mpich], [mpix_for_mpich=1], [openmpi], [mpix_for_open_mpi=1])
  AC_SUBST([mpi_name])
  AC_SUBST([mpix_for_mpich])
  AC_SUBST([mpix_for_open_mpi])

  # the large-count forms of MPI 4.0 come all together; HAVE_MPI_... for the sources
  mpi_large_count=yes mpi_sessions=yes
  AC_CHECK_FUNCS([PMPI_Put_c PMPI_Accumulate_c PMPI_Win_create_c PMPI_Win_allocate_c], [],
                 [mpi_large_count=no])
  AC_CHECK_FUNC([PMPI_Session_init], [], [mpi_sessions=no])
  AC_CHECK_FUNC([PMPI_Psend_init],
    [AC_DEFINE([HAVE_MPI_PSEND_INIT], [1], [MPI has MPI_Psend_init and its like])])
  AS_IF([test $mpi_large_count = yes],
    [AC_DEFINE([HAVE_MPI_LARGE_COUNT], [1], [MPI has MPI_Put_c and its like])])
  AS_IF([test $mpi_sessions = yes],
    [AC_DEFINE([HAVE_MPI_SESSION_INIT], [1], [MPI has MPI_Session_init])])
  CPPFLAGS=$mpix_save_CPPFLAGS LIBS=$mpix_save_LIBS

  # mpicxx.mpich goes with mpiexec.mpich: another one starts N programs of one rank each
  AS_IF([test "x$MPIEXEC" = x], [
    mpix_suffix=`basename "$MPI_WRAPPER" | sed 's/^mpi\(cxx\|c++\|CC\|cc\)//'`
    AC_PATH_PROGS([MPIEXEC], [mpiexec$mpix_suffix mpirun$mpix_suffix], [],
                  [${MPI_WRAPPER%/*}$PATH_SEPARATOR$PATH])
  ])
  AS_IF([test "x$MPIEXEC" = x], [mpi_tests="skipped: no mpiexec found; set MPIEXEC"],
                                [mpi_tests="run with $MPIEXEC"])
  AC_SUBST([MPI_KIND])
])
