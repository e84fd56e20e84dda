# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors

# MPIX_CONCLUDE(PACKAGE, FOUND, REASON): how --with-PACKAGE=auto|yes|no|DIR ends. FOUND is a shell
# variable that is empty if the package is not usable, REASON one that then says why. Sets
# PACKAGE_found to the text for the summary.
AC_DEFUN([MPIX_CONCLUDE], [
  AC_SUBST([with_$1])
  AS_IF([test "x$with_$1" = xno], [$1_found="no (--without-$1)"],
        [test "x$$2" != x], [$1_found=$$2],
        [test "x$with_$1" = xauto], [$1_found="no ($$3)"],
        [AC_MSG_ERROR([--with-$1=$with_$1: $$3])])
])
