#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# Faces between nodes, with few triggered operations: the three throttling policies, merged or not, eager or not.
# Usage, in a build directory: SOURCE/benchmarks/throttle/run.sh [RANKS] [BUDGET]    (4 ranks, each its own node; 32)
#
# A share is one exchange with its computation. The program that throttles itself (application) synchronizes after so
# many shares as fit into the budget; the others enqueue 60 and synchronize once.
set -euo pipefail
ranks=${1:-4} budget=${2:-32}
mpiexec=$(sed -n 's/^MPIEXEC = //p' Makefile)
kind=$(sed -n 's/^MPI_KIND = //p' Makefile)
preload=
((ranks <= $(nproc))) || [[ $kind != mpich ]] || preload=$PWD/tests/support/.libs/libyield.so
export MPIX_DEVICE=host MPIX_NODE_SIZE=1 MPIX_STATS=1 MPIX_TRIGGERED_OPS=$budget

faces() {  # NAME=VALUE… -- ARGUMENTS
  local settings=()
  while [[ $1 != -- ]]; do settings+=("$1"); shift; done
  shift
  "$mpiexec" -n "$ranks" env ${preload:+LD_PRELOAD=$preload} "${settings[@]}" benchmarks/faces/faces --device host \
    --no-stdin --size small --niface 2 --variant st --csv "$@" 2>&1
}

operations=$(((ranks - 1) * 2))  # an epoch's, where all ranks are neighbours: a message and a post each
fitting=$((budget / operations - 1))  # operations may be over a little later than what is enqueued
((fitting > 0)) || fitting=1
echo "Faces, small, $ranks ranks as $ranks nodes, budget $budget; $(nproc) cores; application synchronizes after $fitting shares"
printf '%-12s %-9s %-8s %12s %14s\n' policy kernels puts 'a share [us]' 'most queued'
for merge in on off; do
  for eager in 16k 0; do
    for policy in adaptive static application; do
      shares=60 runs=3
      [[ $policy != application ]] || { shares=$fitting; runs=$((3 * 60 / fitting)); }
      # direct puts have no message: more operations a share, so the program cannot know how many fit
      [[ $policy != application || $eager != 0 ]] || { shares=1; runs=180; }
      out=$(faces MPIX_THROTTLE=$policy MPIX_MERGE=$merge MPIX_NIC_EAGER_SIZE=$eager -- --nshare $shares --niel $runs --repeat 3) || {
        printf '%-12s %-9s %-8s %12s\n' $policy "merge=$merge" "eager=$eager" "$(grep -o 'needs [0-9]* triggered operations' <<< "$out" | head -n 1)"
        continue
      }
      time=$(grep -E '^st,' <<< "$out" | cut -d, -f17 | head -n 1)
      peak=$(grep -oE 'at most [0-9]+ of [0-9]+' <<< "$out" | sort -k3n | tail -n 1)
      printf '%-12s %-9s %-8s %12s %14s\n' $policy "merge=$merge" "eager=$eager" "$time" "${peak#at most }"
    done
  done
done
