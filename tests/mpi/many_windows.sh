#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# 600 windows of a program that does not use the library take what they take without it: no descriptor, no mapping, and a few
# KB each. With stream epochs on some of them, no descriptor either, and what they mapped is given back.
#
#   MPIEXEC='mpiexec -n 4' LIBMPIX=.libs/libmpix.so tests/mpi/many_windows.sh tests/mpi/many_windows
set -euo pipefail
program=${1:?the program}
: "${MPIEXEC:?the mpiexec command with its options, as in: mpiexec -n 4}"
: "${LIBMPIX:?the path of libmpix.so}"
library=$(realpath "$LIBMPIX")
others=${LD_PRELOAD:-}
unset LD_PRELOAD

run() {  # PRELOAD [ARGUMENT] → "when descriptors mappings kilobytes", by line
  # shellcheck disable=SC2016,SC2086 # the command is words; the ranks expand the rest
  $MPIEXEC env ${1:+"LD_PRELOAD=$1"} bash -c 'ulimit -n 1024; ulimit -v 2000000; exec "$@"' _ "$program" ${2:+"$2"} < /dev/null
}
value() { awk -v when="$2" -v column="$3" '$1 == when { print $column }' <<< "$1"; }
failed=0
compare() {  # WHAT HAVE MOST
  echo "$1: $2, at most $3"
  if (($2 > $3)); then failed=1; fi
}

plain=$(run "$others")
preloaded=$(run "$library${others:+:$others}")
streams=$(run "$library${others:+:$others}" streams)
printf 'without libmpix:\n%s\nwith it:\n%s\nwith stream epochs:\n%s\n' "$plain" "$preloaded" "$streams"
for when in windows freed; do
  [[ $(value "$plain" $when 2) && $(value "$streams" $when 2) ]] || { echo "the program did not get to its end"; exit 1; }
  compare "descriptors, $when" "$(value "$preloaded" $when 2)" "$(value "$plain" $when 2)"
  compare "mappings, $when" "$(value "$preloaded" $when 3)" $(($(value "$plain" $when 3) + 8))
  compare "KB of address space, $when" "$(value "$preloaded" $when 4)" $(($(value "$plain" $when 4) + 600 * 8))
done
# A stream has threads and their stacks, which the C library keeps.
compare "descriptors with stream epochs" "$(value "$streams" epochs 2)" "$(value "$plain" windows 2)"
compare "mappings with stream epochs" "$(value "$streams" epochs 3)" $(($(value "$plain" windows 3) + 50 * 6 + 16))
compare "descriptors after stream epochs" "$(value "$streams" freed 2)" "$(value "$plain" freed 2)"
compare "mappings after stream epochs" "$(value "$streams" freed 3)" $(($(value "$plain" freed 3) + 16))
exit $failed
