#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# The level of threads that a program is told is MPI's answer, also where libmpix asks MPI for more: where ranks are on
# several nodes. Usage: levels.sh PROGRAM (tests/mpi/levels).
set -u
program=${1:?the program}
library=$(realpath "${LIBMPIX:?the path of libmpix.so}")
others=${LD_PRELOAD:-}
unset LD_PRELOAD

run() {  # PRELOAD ARGUMENT…
  # shellcheck disable=SC2086 # words
  timeout --kill-after=5 "${TEST_TIMEOUT:-60}" $MPIEXEC env MPIX_NODE_SIZE=1 MPIX_LOG=info MPIX_NIC=$nic \
    ${1:+"LD_PRELOAD=$1"} "$program" "${@:2}" < /dev/null
}

failed=0
for nic in auto mpi; do
  for level in '' 0 1 2 3; do
    # shellcheck disable=SC2086 # none or one
    plain=$(run "$others" $level) preloaded=$(run "$library${others:+:$others}" $level 2> levels.$$)
    echo "$plain"
    if [[ -z $plain || $plain != "$preloaded" ]] || ! grep -q 'libmpix .* ranks' levels.$$; then
      echo "FAILED: MPIX_NIC=$nic: with libmpix: $preloaded"
      cat levels.$$
      failed=1
    fi
    rm -f levels.$$
  done
done
exit $failed
