#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# A program that does not use libmpix cannot tell that it is there: what a plain program finds in its process, and what
# a shell sees of it, is the same with LD_PRELOAD=libmpix.so and without; or the table below says by how much it may
# differ, and doc/limits.md why. Usage: harmless.sh PROGRAM WINDOWS (tests/mpi/harmless).
set -u
program=$PWD/$1 windows=$2
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
library=$(realpath "${LIBMPIX:?the path of libmpix.so}")
others=${LD_PRELOAD:-}
unset LD_PRELOAD MPIX_NIC MPIX_DEVICE  # as preset, and not as tests are run
scale=${LIBMPIX_TEST_TIMEOUT_SCALE:-1}
[[ ! ${TSAN_OPTIONS:-}${ASAN_OPTIONS:-} ]] || { echo "skipped: sanitizers change the process"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 99' INT TERM HUP

# By how much a fact may be larger with the library than without, in each process:
#   FACT  WHERE  MOMENT  DIFFERENCE  and as much more for each open WINDOW
# FACT and MOMENT are those that harmless.cpp prints; WHERE: node (all ranks on one), nodes (a rank each), cable (in
# network namespaces); * is any. The first line that fits counts.
elsewhere=$((64 * (LIBMPIX_TEST_RANKS - 1)))  # for each rank of another node
as_preset="
mappings    *      windows  24     1
mappings    *      *        24     0
address-KB  node   windows  16384  16
address-KB  *      windows  16384  $elsewhere
address-KB  *      *        16384  0
peak-KB     *      init     16384  0
peak-KB     node   *        16384  16
peak-KB     *      *        16384  $elsewhere
*           *      *        0      0
"
# MPIX_NIC=sockets opens libfabric at the first window of ranks on several nodes: that brings its libraries, threads,
# descriptors and memory, once.
with_sockets="
threads      nodes  init  0      0
threads      nodes  *     4      0
descriptors  nodes  init  0      0
descriptors  nodes  *     24     0
mappings     nodes  *     96     0
address-KB   nodes  *     49152  $elsewhere
peak-KB      nodes  *     49152  $elsewhere
$as_preset"
allowed=$as_preset
failed=0
differs() {  # FACT WHERE MOMENT TEXT
  echo "FAILED: $1, $2, $3: $4"
  failed=1
}
same() {  # FACT WHERE MOMENT WITHOUT WITH
  if [[ $4 == "$5" ]]; then
    echo "the same: $1, $2, $3"
  else
    differs "$1" "$2" "$3" "'$4' without the library, '$5' with it"
  fi
}

run() {  # with|without [VARIABLE=VALUE …] PROGRAM [ARGUMENT …]
  local preload=$others
  [[ $1 == without ]] || preload=$library${others:+:$others}
  shift
  # shellcheck disable=SC2086 # words
  timeout -k 5 $((120 * scale)) $MPIEXEC env ${preload:+"LD_PRELOAD=$preload"} "$@" < /dev/null
}

# --- what the program finds in its process: all lines of two files, as the table says
compare() {  # WHERE WITHOUT WITH
  if (($(grep -c '^rank' "$2") < 20 * LIBMPIX_TEST_RANKS)) || (($(wc -l < "$2") != $(wc -l < "$3"))); then
    differs output "$1" all "$(wc -l < "$3") lines in place of $(wc -l < "$2"): $(tail -n 5 "$3")"
    return
  fi
  awk -v where="$1" -v windows="$windows" -v table="$allowed" '
    function fits(pattern, text) { return pattern == "*" || pattern == text }
    BEGIN { rows = split(table, row, "\n") }
    NR == FNR { without[$1, $2, $3, $4] = $5; next }
    !(($1, $2, $3, $4) in without) { print "output", where, "all", $0; next }
    {
      moment = substr($3, 1, length($3) - 1)
      before = without[$1, $2, $3, $4]
      for (i = 1; i <= rows; i++)
        if (split(row[i], word, " ") == 5 && fits(word[1], $4) && fits(word[2], where) && fits(word[3], moment)) break
      room = word[4] + windows * word[5]
      if (room ? $5 - before > room : $5 != before)
        print $4, where, moment, $1 " " $2 ": " before " without the library, " $5 " with it"
    }' "$2" "$3" > "$scratch/differences"
  local fact where moment text
  while read -r fact where moment text; do differs "$fact" "$where" "$moment" "$text"; done < "$scratch/differences"
  [[ -s $scratch/differences ]] || echo "the same: what a process finds in itself, $1"
}
facts() {  # WHERE MPIX_NODE_SIZE [VARIABLE=VALUE …]
  local how attempt
  for how in without with; do
    for attempt in 1 2; do
      run $how "MPIX_NODE_SIZE=$2" "${@:3}" "$program" "$windows" > "$scratch/$how" 2> "$scratch/errors.$how" || echo "ended with $?" >> "$scratch/$how"
      # Open MPI's mpiexec says so of a rank that has called MPI_Finalize, too, on a busy machine now and then.
      grep -q 'exiting improperly' "$scratch/errors.$how" || break
      echo "again: what a process finds, $1, $how the library: mpiexec says that a rank has ended improperly"
    done
  done
  compare "$1" "$scratch/without" "$scratch/with"
  same errors "$1" output "$(cat "$scratch/errors.without")" "$(cat "$scratch/errors.with")"
}
facts node 0
greatest() { awk -v fact="$1" '$4 == fact && $5 > most { most = $5 } END { print most + 0 }' "$scratch/without"; }
plain_peak=$(greatest peak-KB) plain_descriptors=$(greatest descriptors)
facts nodes 1

# --- with triggered operations in software between nodes. More windows than they are (512) concern nobody who uses none.
networks=$("$(dirname "$library")/../mpix-info" | grep '^between nodes:') || differs networks any start "mpix-info does not tell them"
if [[ $networks == *sockets* ]]; then
  allowed=$with_sockets
  descriptors=$(ulimit -Sn)
  ulimit -Sn 1024 2> /dev/null || echo "with the limit of $descriptors descriptors that is there"
  echo "with MPIX_NIC=sockets:"
  facts node 0 MPIX_NIC=sockets
  facts nodes 1 MPIX_NIC=sockets
  ulimit -Sn "$descriptors"
  allowed=$as_preset
else
  echo "not tried with MPIX_NIC=sockets: this build has no libfabric"
fi

# --- on real nodes, as far as network namespaces are such
if ((LIBMPIX_TEST_RANKS == 2)); then
  for how in without with; do
    preload=$others
    [[ $how == without ]] || preload=$library${others:+:$others}
    printf '#!/bin/sh\nexec env %s "$@"\n' "${preload:+LD_PRELOAD=$preload}" > "$scratch/on-node"
    chmod +x "$scratch/on-node"
    "$here/netns.sh" "$(realpath --relative-to=. "$scratch/on-node")" 0 "$program" "$windows" > "$scratch/cable.$how" 2>&1
    status=$?
    ((status == 77)) && break
    grep '^rank' "$scratch/cable.$how" > "$scratch/$how"
    ((status == 0)) || { differs output cable all "ended with $status: $(tail -n 3 "$scratch/cable.$how")"; break; }
  done
  if ((status == 77)); then
    tail -n 1 "$scratch/cable.without" | sed 's/^skipped/not tried between network namespaces/'
  elif ((status == 0)); then
    compare cable "$scratch/without" "$scratch/with"
  fi
fi

# --- what a shell sees: exit codes, signals, output. Who has a signal runs alone, as mpiexec would add to it.
for node_size in 0 1; do
  where=$([[ $node_size == 0 ]] && echo node || echo nodes)
  for arguments in "exit 0" "exit 3" handler put raise; do
    launch=$MPIEXEC
    [[ $arguments == exit* ]] || launch=
    for how in without with; do
      for attempt in {1..20}; do
        # Open MPI's component rdma creates no window in a process that runs alone.
        # shellcheck disable=SC2086 # words
        MPIEXEC=$launch run $how OMPI_MCA_osc=^rdma "MPIX_NODE_SIZE=$node_size" "$program" $arguments > "$scratch/shell" 2>&1
        status=$?
        # Open MPI's report of an error sometimes fails, with libmpix and without, on a busy machine in one run of ten.
        grep -q 'ORTE_ERROR_LOG.*show_help' "$scratch/shell" || break
        echo "again: $arguments, $where, $how the library: $(tail -n 1 "$scratch/shell")"
      done
      printf -v "seen_$how" '%s: %s' $status "$(grep -v 'PID\|pid\|Process name' "$scratch/shell" | sed 's/0x[0-9a-f]*/ADDRESS/g; s/[0-9]\{2,\}/N/g' | sort)"
    done
    # shellcheck disable=SC2154 # by printf
    same "${arguments// /-}" "$where" end "$seen_without" "$seen_with"
  done
done
[[ $seen_with == 143:* ]] || differs raise nodes end "the status of a process that SIGTERM ended is not 143: $seen_with"

# --- as many windows under limits that the program has room in
limited() { (ulimit -n 1024 -v 2097152 && run "$1" "$program" "$windows") > "$scratch/limited" 2>&1; }
if ((plain_peak > 1536 * 1024 || plain_descriptors > 768)); then
  echo "not tried under limits: without the library the program takes $plain_peak KB and $plain_descriptors descriptors"
else
  for how in without with; do
    limited $how || differs limits node windows "$how the library, under ulimit -n 1024 -v 2097152: $(tail -n 2 "$scratch/limited")"
  done
fi

# --- a program that has nothing to do with MPI: what is in it, and how long it takes to start
mpi=$(ldd "$library" | awk '$1 ~ /^libmpi/ && !seen++ { print $3 }')
alone_with() { LD_PRELOAD=$1 "${@:2}" < /dev/null; }
inside() {  # PRELOAD → its mappings, and its address space in KB
  alone_with "$1" cat /proc/self/maps /proc/self/status |
    awk '/^[0-9a-f]+-/ { ++count } $1 == "VmPeak:" { print count, $2 }'
}
read -r mappings_before address_before <<< "$(inside "$mpi")"
read -r mappings address <<< "$(inside "$library")"
echo "cat: $mappings_before mappings and $address_before KB with MPI's library alone," \
  "$((mappings - mappings_before)) and $((address - address_before)) KB more with libmpix"
((mappings - mappings_before <= 24)) || differs mappings node start "too many more"
((address - address_before <= 16384)) || differs peak-KB node start "too many more"

program=$(type -P true)  # not the shell's own
took() {  # PRELOAD → microseconds
  local begin=${EPOCHREALTIME/[.,]/}
  alone_with "$1" "$program"
  echo $((${EPOCHREALTIME/[.,]/} - begin))
}
median() { sort -n "$1" | sed -n 11p; }
least() { sort -n "$1" | sed -n 1p; }
# The medians of starts in turns; on a busy machine the quickest ones say more, and on a slow one what MPI's own library
# takes: libmpix may take 10 ms, or half of that.
for attempt in {1..5}; do
  rm -f "$scratch"/start.*
  for turn in {1..21}; do
    took "$mpi" >> "$scratch/start.mpi"
    took "$library" >> "$scratch/start.libmpix"
  done
  longer=$(($(median "$scratch/start.libmpix") - $(median "$scratch/start.mpi")))
  at_least=$(($(least "$scratch/start.libmpix") - $(least "$scratch/start.mpi")))
  echo "true: $(median "$scratch/start.mpi") us with MPI's library alone, $longer us more with libmpix;" \
    "the quickest $at_least us more"
  half=$(($(least "$scratch/start.mpi") / 2))
  ((longer <= 10000 || at_least <= 10000 || at_least <= half)) && break
done
((longer <= 10000 || at_least <= 10000 || at_least <= half)) ||
  differs start node true "more than 10 ms, and than half of what MPI takes, in $attempt series of $turn starts"
exit $failed
