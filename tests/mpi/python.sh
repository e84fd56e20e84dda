#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# The Python example, with a Python whose mpi4py is for the MPI of this build.
set -u
library=$(realpath "${LIBMPIX:?the path of libmpix.so}")
example=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../examples/jacobi.py")
others=${LD_PRELOAD:-}
unset LD_PRELOAD
[[ ! ${TSAN_OPTIONS:-}${ASAN_OPTIONS:-} ]] || { echo "skipped: Python is not made for sanitizers"; exit 77; }
kind=$(ldd "$library" | sed -n 's/.*\(libmpich\|libmpi\)\.so.*/\1/p' | head -n 1)
other=''
for python in $(command -v python3) /usr/bin/python3; do
  loads=$("$python" -c 'import mpi4py; mpi4py.rc.initialize = False
from mpi4py import MPI
print(*(line.split("/")[-1].split(".")[0] for line in open("/proc/self/maps") if "/libmpi" in line))' 2> /dev/null) || continue
  if [[ " $loads " != *" $kind "* ]]; then
    other="the mpi4py that is here is for another MPI"
    continue
  fi
  # shellcheck disable=SC2086 # words
  output=$($MPIEXEC env "LD_PRELOAD=$library${others:+:$others}" "LIBMPIX=$library" "$python" "$example" 2>&1 < /dev/null)
  status=$?
  echo "$output"
  ((status == 0)) && grep -q "jacobi.py: $LIBMPIX_TEST_RANKS ranks, OK" <<< "$output" || exit 1
  # and without libmpix it says so
  $MPIEXEC env -u LIBMPIX "$python" "$example" 2>&1 < /dev/null | grep "libmpix is not in front of MPI"
  exit
done
echo "skipped: ${other:-there is no Python with mpi4py}"
exit 77
