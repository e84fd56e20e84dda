#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# LD_PRELOAD=libmpix.so changes nothing for a program that does not use it: runs tests/mpi/plain
# with and without, and compares.
#
#   MPIEXEC='mpiexec -n 4' LIBMPIX=.libs/libmpix.so tests/mpi/preload.sh tests/mpi/plain
#
# What LD_PRELOAD is set to already goes to both runs.
set -euo pipefail
program=${1:?the program}
: "${MPIEXEC:?the mpiexec command with its options, as in: mpiexec -n 4}"
: "${LIBMPIX:?the path of libmpix.so}"
library=$(realpath "$LIBMPIX")
others=${LD_PRELOAD:-}
unset LD_PRELOAD

run() {  # PRELOAD → standard output
  # shellcheck disable=SC2086 # the command is words
  timeout --kill-after=5 $((60 * ${LIBMPIX_TEST_TIMEOUT_SCALE:-1})) \
    $MPIEXEC env ${1:+"LD_PRELOAD=$1"} "$program" < /dev/null
}

if nm -D "$program" | grep MPIX_ > /dev/null; then
  echo "$program uses libmpix: it is not the plain program that this test is about" >&2
  exit 1
fi
plain=$(run "$others")
preloaded=$(run "$library${others:+:$others}")
echo "$plain"
if [[ $(wc -l <<< "$plain") -lt 17 ]]; then
  echo "the plain program did not get to its end" >&2
  exit 1
fi
if [[ $plain != "$preloaded" ]]; then
  echo "under LD_PRELOAD=$library the program gives:" >&2
  diff <(echo "$plain") <(echo "$preloaded") >&2
  exit 1
fi
# The comparison means something only where the library really was there.
if ! MPIX_DEVICE=nonsense run "$library${others:+:$others}" > /dev/null 2>&1; then
  echo "the same with libmpix preloaded"
else
  echo "libmpix was not there: a wrong setting of it did no harm" >&2
  exit 1
fi
