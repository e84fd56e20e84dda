#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# Which way to other nodes is chosen, and what is told about it. Usage: fallback.sh PLAIN THREADED [ARGUMENT]: two
# programs with epochs, one that calls MPI_Init, and one that asks for MPI_THREAD_MULTIPLE.
set -u
plain=$1
shift
threaded=("$@")
output=$(mktemp)
trap 'rm -f "$output"' EXIT
failed=0

# expect STATUS TEXT [NAME=VALUE…] PROGRAM: 0 or 1, and what the output has to contain
expect() {
  local status=$1 text=$2 got=0
  shift 2
  # shellcheck disable=SC2086 # a command
  $MPIEXEC env MPIX_NODE_SIZE=1 MPIX_LOG=info "$@" > "$output" 2>&1 || got=1
  if ((got == status)) && grep -q "$text" "$output"; then
    echo "as it should: $*: $text"
    return
  fi
  echo "FAILED: $*: expected status $status and '$text', got status $got and:"
  cat "$output"
  failed=1
}

# with FI_PROVIDER=tcp libfabric has no triggered operations
expect 0 'network mpi' MPIX_NIC=mpi "$plain"
expect 0 'messages of MPI carry epochs between nodes, as ' MPIX_NIC=auto "${threaded[@]}"
expect 0 'messages of MPI carry epochs between nodes, as ' MPIX_NIC=auto "$plain"
expect 0 'messages of MPI carry epochs between nodes, as ' FI_PROVIDER=tcp MPIX_NIC=auto "${threaded[@]}"

# an MPI that has no more than MPI_THREAD_FUNNELED
funneled=LD_PRELOAD=$PWD/tests/support/.libs/libfunneled.so${LD_PRELOAD:+:$LD_PRELOAD}
expect 0 'network sockets' "$funneled" MPIX_NIC=auto "$plain"
expect 0 'over sockets, in software.* MPI_THREAD_MULTIPLE' "$funneled" MPIX_NIC=auto "$plain"
expect 1 'MPI_THREAD_MULTIPLE' "$funneled" MPIX_NIC=mpi "$plain"
expect 1 'MPI_THREAD_MULTIPLE' "$funneled" FI_PROVIDER=tcp MPIX_NIC=auto "$plain"

# a setting that is none: said once, whatever the number of ranks
expect 0 'MPIX_TIMEUOT.*MPIX_TIMEOUT' MPIX_TIMEUOT=3 "$plain"
said=$(grep -c MPIX_TIMEUOT "$output")
((said == 1)) || { echo "FAILED: a setting that is none is named $said times"; failed=1; }

# two windows
steady=$(dirname "${threaded[0]}")/steady
expect 0 '2 windows share a budget of 1 ' MPIX_NIC=sockets MPIX_TRIGGERED_OPS=1 SOAK_EPOCHS=50 "$steady"

# libfabric's part
expect 1 'libfabric' FI_PROVIDER=tcp MPIX_NIC=sockets "${threaded[@]}"
expect 1 'MPIX_NIC=none' MPIX_NIC=none "${threaded[@]}"
# before anybody waits for those who think otherwise
# shellcheck disable=SC2016 # expanded by each rank
differ='MPIX_NODE_SIZE=$((${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}} % 2)) exec "$0" "$@"'
expect 1 'MPIX_NODE_SIZE differs between the ranks' sh -c "$differ" "$plain"
exit $failed
