#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# HIP's runtime is loaded where an AMD GPU is asked for, and nowhere else. Usage: hip.sh PROGRAM UNIT_TESTS
# (tests/mpi/harmless, tests/unit/unit_tests).
set -u
program=$PWD/$1 unit_tests=$PWD/$2
: "${LIBMPIX:?the path of libmpix.so}"
skip() { echo "skipped: $*"; exit 77; }
name=$(grep -ao 'libamdhip64\.so\.[0-9]*' "$LIBMPIX")
name=${name%%$'\n'*}
[[ $name ]] || skip "this library is built without HIP"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
found=$folder/found
mkdir "$found"
failed=0

expect() {  # STATUS TEXT COMMAND…: 0 or 1, and what the output has to contain; !TEXT: must not
  local status=$1 text=$2 got=0 seen=0
  shift 2
  "$@" > "$folder/output" 2>&1 || got=1
  grep -q -- "${text#!}" "$folder/output" || seen=1
  if ((got == status)) && [[ $seen == "$([[ $text == !* ]] && echo 1 || echo 0)" ]]; then
    echo "as it should: $text"
    return
  fi
  echo "FAILED: $*: expected status $status and '$text', got status $got and:"
  cat "$folder/output"
  failed=1
}
with_device() {  # MPIX_DEVICE → the program, which finds in $found what is called as HIP's runtime
  # shellcheck disable=SC2086 # words
  $MPIEXEC env MPIX_LOG=info MPIX_DEVICE="$1" LD_LIBRARY_PATH="$found${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
    LD_PRELOAD="$LIBMPIX${LD_PRELOAD:+:$LD_PRELOAD}" "$program" exit 0 < /dev/null
}
unit() {
  MPIX_DEVICE=host LD_LIBRARY_PATH="$found${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FAKE_HIP=$name "$unit_tests" "$1"
}

# nothing that can be loaded, and a library that lacks a call
echo > "$found/$name"
expect 1 "MPIX_DEVICE=hip: HIP cannot be loaded: .*$name" with_device hip
expect 0 "!HIP" with_device auto
ln -sf "$PWD/tests/support/.libs/libkeep.so" "$found/$name"
expect 1 "MPIX_DEVICE=hip: HIP cannot be loaded: .*$name: undefined symbol" with_device hip

# one that takes notes
ln -sf "$PWD/tests/support/.libs/libfakehip.so" "$found/$name"
expect 0 'fake_hip: \([0-9]*\) binaries, \1 taken back' unit "[.fake_hip]"
if [[ -e /dev/kfd ]]; then
  echo "not tried: what happens without an AMD GPU"
else
  expect 0 "!fake_hip" with_device auto
  rm "$found/$name"
  expect 0 "All tests passed" unit "[.true_hip]"
  expect 1 "MPIX_DEVICE=hip: no such device here" with_device hip
fi
exit $failed
