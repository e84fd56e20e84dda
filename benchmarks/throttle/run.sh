#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# Faces between nodes, with few triggered operations: see usage(). benchmarks/README.md explains the table.
set -euo pipefail

usage() {
  cat << 'END'
Usage, in a build directory: SOURCE/benchmarks/throttle/run.sh [options]

Faces on ranks that each are a node of their own, on the host back end: point-to-point and active RMA over TCP, and
stream-triggered epochs with each throttling policy, merged and unmerged, eager and direct. All variants are run in
turn, in rounds. Ends with one table: medians over the rounds, with least and most.

  -n RANKS     ranks                                             (default: 4)
  -b BUDGET    triggered operations of a process                 (default: 32)
  -s SIZE      tiny, small: the mesh, see faces --help           (default: small)
  -k SHARES    exchanges of a run, with one synchronization at its end; application: one after every few, as fit (default: 60)
  -r ROUNDS    how often each variant is run                     (default: 5)
  -t SECONDS   what a run may take                               (default: 20)
  -c FILE      the table as comma-separated values, too
  -h           this text
END
}

ranks=4 budget=32 size=small shares=60 rounds=5 limit=20 csv=
while getopts n:b:s:k:r:t:c:h option; do
  case $option in
    n) ranks=$OPTARG ;; b) budget=$OPTARG ;; s) size=$OPTARG ;; k) shares=$OPTARG ;; r) rounds=$OPTARG ;; t) limit=$OPTARG ;;
    c) csv=$OPTARG ;; h) usage; exit 0 ;; *) usage >&2; exit 2 ;;
  esac
done
faces_program=benchmarks/faces/faces
if [[ ! -x $faces_program || ! -f Makefile ]]; then
  echo "$0: run this in a build directory, after make" >&2
  exit 2
fi

variable() { sed -n "s/^$1 = //p" Makefile; }
mpiexec=$(variable MPIEXEC) kind=$(variable MPI_KIND)
preload='' yields=''
if ((ranks > $(nproc))) && [[ $kind == mpich ]]; then
  preload=$PWD/tests/support/.libs/libyield.so
  [[ -f $preload ]] || make -s tests/support/libyield.la > /dev/null
  yields=", which yields (tests/support/yield_progress.c), as there are more ranks than cores"
fi
launcher=("$mpiexec" -n "$ranks")
# Epochs may go in messages of MPI, too, so this is for all variants.
if [[ $kind == openmpi ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  launcher+=(--oversubscribe --bind-to none)
  export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_osc=pt2pt
else
  export UCX_TLS=tcp,self  # an MPICH over UCX, as Debian's
fi
export MPIX_DEVICE=host MPIX_NODE_SIZE=1 MPIX_STATS=1 MPIX_TRIGGERED_OPS=$budget

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 99' INT TERM HUP

# faces NAME=VALUE… -- ARGUMENTS: what it printed goes to $scratch/out. MPICH with UCX_TLS=tcp,self hangs in MPI_Finalize
# now and then, after the results, also when it is asked to end: those count.
faces() {
  local settings=() status=0
  while [[ $1 != -- ]]; do settings+=("$1"); shift; done
  shift
  timeout -k 2 "$limit" "${launcher[@]}" env ${preload:+LD_PRELOAD=$preload} "${settings[@]}" "$faces_program" --device host --no-stdin \
    --size "$size" --niface 1 --repeat 3 --csv "$@" > "$scratch/out" 2>&1 || status=$?
  ((status == 0)) || { ((status == 124 || status == 137)) && grep -qE "^(rma|st)," "$scratch/out"; }
}
time_of() { grep -E "^$1," "$scratch/out" | cut -d, -f17 | sed -n 1p; }
# of the busiest process: operations an epoch
operations() {
  sed -nE 's/.*, ([0-9]+) access epochs,.* to other nodes: ([0-9]+) operations.*/\2 \1/p' "$scratch/out" |
    awk '$2 > 0 { each = $1 / $2; if (each > most) most = each } END { printf "%d\n", most + 0.999 }'
}
largest() { grep -oE "$1" "$scratch/out" | grep -oE '[0-9]+' | sort -n | tail -n 1; }

# After how many shares the stream is synchronized: as many as fit into the budget, where the program has to see to it; what is over may be counted a little later
# than the stream has ended, so there may have to be fewer. Prints 0 where not even one fits; and -1 where a run failed with anything
# else than a budget that is too small: its output is then $scratch/failed.fitting.
fitting() {  # MERGE EAGER
  local each most
  faces MPIX_MERGE="$1" MPIX_NIC_EAGER_SIZE="$2" MPIX_TRIGGERED_OPS=512 -- --variant st --nshare 1 --niel 1 || { not_known; return; }
  each=$(operations)
  ((each > 0)) || { not_known; return; }
  for ((most = budget / each < shares ? budget / each : shares; most > 0; most--)); do
    ! faces MPIX_THROTTLE=application MPIX_MERGE="$1" MPIX_NIC_EAGER_SIZE="$2" -- --variant st --nshare "$shares" --sync $most --niel 5 ||
      { echo $most; return; }
    # as the policy says it, src/net/throttle.cpp
    grep -qE 'needs [0-9]+ triggered operations, and [0-9]+ of the budget of [0-9]+ are free' "$scratch/out" || { not_known; return; }
  done
  echo 0
}
not_known() { cp "$scratch/out" "$scratch/failed.fitting"; echo -1; }

# --- the rows: NAME|SETTINGS|SHARES AT A TIME
rows=()
for merge in on off; do
  for eager in 16k 0; do
    form="$([[ $merge == on ]] && echo merged || echo unmerged), $([[ $eager == 0 ]] && echo direct || echo eager)"
    most=$(fitting $merge $eager)
    for policy in adaptive static application; do
      at_a_time=$shares
      if [[ $policy == application ]]; then
        at_a_time=$most
        ((most >= 0)) || mv "$scratch/failed.fitting" "$scratch/failed.${#rows[@]}"
      fi
      rows+=("$policy, $form|MPIX_THROTTLE=$policy MPIX_MERGE=$merge MPIX_NIC_EAGER_SIZE=$eager|$at_a_time")
    done
  done
done

load=$(cut -d' ' -f1 /proc/loadavg)
echo "Faces, $size, $ranks ranks as $ranks nodes of one machine with $(nproc) cores; budget $budget; $rounds rounds"
echo "All over TCP, also between ranks of this machine: ${kind}, no shared memory$yields"
echo "Stream-triggered: MPIX_NIC=${MPIX_NIC:-auto}, host streams. Load average at the start: $load"
mpi_library=$(ldd "$faces_program" 2> /dev/null | awk '/libmpi(ch)?\.so/ { print $3; exit }')
if [[ $mpi_library ]] && nm -D "$mpi_library" | grep MPIX_Put_enqueue > /dev/null; then
  echo "This MPI has MPIX_Put_enqueue, which Faces does not use."
else
  echo "This MPI has no one-sided calls of its own that are enqueued on a stream (MPIX_Put_enqueue): nothing to compare with."
fi

# --- the runs: every row once in each round
for ((round = 1; round <= rounds; round++)); do
  echo "round $round of $rounds" >&2
  if faces MPIX_STATS=0 -- --variant p2p,rma --nshare "$shares" --niel 3; then
    for variant in p2p rma; do time_of $variant >> "$scratch/time.$variant"; done
  else
    for variant in p2p rma; do cp "$scratch/out" "$scratch/failed.$variant"; done
  fi
  for i in "${!rows[@]}"; do
    IFS='|' read -r _ settings at_a_time <<< "${rows[$i]}"
    ((at_a_time > 0)) || continue
    # shellcheck disable=SC2086 # a list
    if faces $settings -- --variant st --nshare "$shares" --sync "$at_a_time" --niel 3; then
      time_of st >> "$scratch/time.$i"
      largest 'at most [0-9]+' >> "$scratch/peak.$i"
    else
      cp "$scratch/out" "$scratch/failed.$i"
    fi
  done
done

# --- the table
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { if (NR) print (NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2) }'; }
p2p=$([[ -f $scratch/time.p2p ]] && median "$scratch/time.p2p" || echo 0)
rma=$([[ -f $scratch/time.rma ]] && median "$scratch/time.rma" || echo 0)
failed=0
row() {  # KEY NAME SHARES
  local times=$scratch/time.$1 peak=-
  if [[ -f $scratch/failed.$1 ]]; then
    failed=1
    printf '%-32s failed: %s\n' "$2" "$(grep -oE 'needs [0-9]+ triggered operations.*|WRONG.*' "$scratch/failed.$1" | sed -n 1p | grep . || echo "it ended with:")"
    tail -n 5 "$scratch/failed.$1" | sed 's/^/  | /'
    return
  fi
  if [[ ! -f $times ]]; then
    printf '%-32s %9s  not run: one exchange needs more than the budget\n' "$2" "$3"
    return
  fi
  [[ ! -f $scratch/peak.$1 ]] || peak=$(sort -n "$scratch/peak.$1" | tail -n 1)
  sort -g "$times" | awk -v name="$2" -v at="$3" -v m="$(median "$times")" -v p2p="$p2p" -v rma="$rma" -v peak="$peak" -v csv="$csv" '
    NR == 1 { least = $1 } { most = $1 }
    END {
      a = p2p > 0 ? sprintf("%.2f", m / p2p) : "-"; b = rma > 0 ? sprintf("%.2f", m / rma) : "-"
      printf "%-32s %9s %10.0f %10.0f %10.0f %8s %8s %10s\n", name, at, m, least, most, a, b, peak
      if (csv != "") printf "\"%s\",%s,%.1f,%.1f,%.1f,%s,%s,%s\n", name, at, m, least, most, a, b, peak >> csv
    }'
  [[ $peak == - ]] || ((peak <= budget)) || { failed=1; echo "  more operations were queued than the budget of $budget allows"; }
}
[[ ! $csv ]] || echo 'variant,shares_at_a_time,us_a_share,least,most,to_p2p,to_rma,most_queued' > "$csv"
echo
printf '%-32s %9s %10s %10s %10s %8s %8s %10s\n' variant 'at a time' 'us/share' least most 'to p2p' 'to RMA' 'queued'
row p2p point-to-point "$shares"
row rma 'active RMA' "$shares"
for i in "${!rows[@]}"; do
  IFS='|' read -r name _ at_a_time <<< "${rows[$i]}"
  row "$i" "$name" "$at_a_time"
done
exit $failed
