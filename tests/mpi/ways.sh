#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# Which way collectives take (tests/mpi/ways.cpp): by size, as MPIX_COLL, info keys and tables say, and what is said of
# those that are wrong. And what mpix-tune writes is a table. Usage: ways.sh PROGRAM MPIX-TUNE.
set -u
program=$PWD/$1 tune=$PWD/$2
ranks=$LIBMPIX_TEST_RANKS
export MPIX_DEVICE=host
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 99' INT TERM HUP
failed=0
expect() {  # WHAT STATUS TEXT SETTINGS-AND-COMMAND...: a text of several lines, all of them there
  local what=$1 status=$2 text=$3 line got
  shift 3
  # shellcheck disable=SC2086 # MPIEXEC is a command with its options
  $MPIEXEC env "$@" > "$scratch/output" 2>&1
  got=$?
  ((got = got != 0))
  if ((got != status)); then
    failed=1
    echo "FAILED: $what: status $got"
  fi
  while IFS= read -r line; do
    grep -qF -e "$line" "$scratch/output" && continue
    failed=1
    echo "FAILED: $what: no '$line'"
  done <<< "$text"
  if ((failed)); then cat "$scratch/output"; exit 1; fi
  echo "ok: $what"
}

expect "by size" 0 $'512 lines\n1024 direct' "$program" 512 1024
expect "forced" 0 $'64 direct\n512 direct' MPIX_COLL=direct "$program" 64 512
expect "by info" 0 $'64 direct\n512 direct' MPIX_COLL=lines "$program" -i mpix_coll direct 64 512
expect "by packs, where no link carries them" 0 $'512 lines\n1024 direct' MPIX_COLL=packs "$program" 512 1024
expect "blocks are for GPUs" 0 $'65536 lines\n64 lines' "$program" -i mpix_coll lines -i mpix_coll_blocks 7 65536 64

cat > "$scratch/table" << END
libmpix-ways 1
allreduce $ranks 1 64 direct 0
allreduce $ranks 1 64k lines 0
allreduce $ranks 1 1m direct 0
END
expect "by a table" 0 $'64 direct\n72 lines\n65536 lines\n65544 direct\n1048584 direct' \
  MPIX_COLL_TABLE="$scratch/table" "$program" 64 72 65536 65544 1048584
expect "forced in spite of a table" 0 $'64 lines\n65544 lines' \
  MPIX_COLL=lines MPIX_COLL_TABLE="$scratch/table" "$program" 64 65544
expect "by info in spite of a table" 0 $'64 lines\n65544 lines' \
  MPIX_COLL_TABLE="$scratch/table" "$program" -i mpix_coll lines 64 65544
sed "s/ $ranks 1 / $((ranks + 1)) 1 /" "$scratch/table" > "$scratch/others"
expect "a table for other numbers of ranks" 0 $'512 lines\n1024 direct' \
  MPIX_COLL_TABLE="$scratch/others" "$program" 512 1024

expect "chosen where they run, between 256 bytes and 8 KiB" 0 $'128 lines\n136 chosen\n8192 chosen\n16384 direct' \
  MPIX_COLL_SELECT=dynamic "$program" 128 136 8192 16384
expect "chosen in spite of a table" 0 $'256 chosen' MPIX_COLL_SELECT=dynamic MPIX_COLL_TABLE="$scratch/table" "$program" 256
expect "by info, and forced" 0 $'256 lines' MPIX_COLL_SELECT=dynamic "$program" -i mpix_coll lines 256
expect "by info" 0 $'256 chosen' "$program" -i mpix_coll_select dynamic 256
expect "by info, and not" 0 $'256 lines' MPIX_COLL_SELECT=dynamic "$program" -i mpix_coll_select static 256
expect "by a model" 0 $'16 lines\n16384 direct' MPIX_COLL_SELECT=model "$program" 16 16384
expect "by a model of one communicator" 0 $'16 lines\n16384 direct' "$program" -i mpix_coll_select model 16 16384
expect "by a table in spite of a model" 0 $'64 direct\n65536 lines\n1048584 direct' \
  MPIX_COLL_SELECT=model MPIX_COLL_TABLE="$scratch/table" "$program" 64 65536 1048584
expect "a model between nodes" 0 $'16 neither' MPIX_COLL_SELECT=model MPIX_NODE_SIZE=1 MPIX_NIC=mpi "$program" 16
expect "a selection that differs" 0 "MPIX_COLL_SELECT, or the info key mpix_coll_select, differs between the ranks" \
  "$program" -r mpix_coll_select dynamic 64
expect "a selection that is wrong" 0 "info mpix_coll_select=dynamical: expected static|model|dynamic" \
  "$program" -i mpix_coll_select dynamical 64

expect "a key that is wrong" 0 "rank 0: MPIX_Comm_prepare_stream: info mpix_coll=line: expected auto|lines|packs|direct" \
  "$program" -i mpix_coll line 64
expect "a key that differs" 0 $'rank 0: MPIX_Comm_prepare_stream: MPIX_COLL, or the info key mpix_coll, differs between\nrank 1: ' \
  "$program" -r mpix_coll lines 64
expect "blocks that differ" 0 $'the info key mpix_coll_blocks differs between the ranks\nrank 1: ' \
  "$program" -r mpix_coll_blocks 4 64
expect "a key that nobody knows" 0 "unknown info key mpix_col" "$program" -i mpix_col lines 64

# tables of which a short number was once the same, and the program hung
echo "libmpix-ways 1
allreduce $ranks 1 12043 direct 0" > "$scratch/own.0"
echo "libmpix-ways 1
allreduce $ranks 1 10923 lines 0" > "$scratch/own.1"
cat > "$scratch/rank" << END
#!/usr/bin/env bash
export MPIX_COLL_TABLE=$scratch/own.\$((\${PMI_RANK:-\${OMPI_COMM_WORLD_RANK:-}} > 0))
exec "\$@"
END
chmod +x "$scratch/rank"
expect "another table on each rank" 0 'rank 0: MPIX_Comm_prepare_stream: the table of MPIX_COLL_TABLE differs' \
  "$scratch/rank" "$program" 11000
cat > "$scratch/rank" << END
#!/usr/bin/env bash
[[ \${PMI_RANK:-\${OMPI_COMM_WORLD_RANK:-}} != 0 ]] || export MPIX_COLL_TABLE=$scratch/table
exec "\$@"
END
chmod +x "$scratch/rank"
expect "a table of one rank" 0 $'the table of MPIX_COLL_TABLE differs between the ranks: \nrank 1: ' \
  "$scratch/rank" "$program" 64
echo "allreduce $ranks 1 2m lines many" >> "$scratch/table"
expect "a table that is wrong" 1 "$scratch/table:5: blocks 'many': expected a number from 0 to 64" \
  MPIX_COLL_TABLE="$scratch/table" "$program" 64
! MPIX_COLL_TABLE="$scratch/table" "${tune%/*}/mpix-info" > /dev/null 2> "$scratch/output" &&
  grep -q "^mpix-info: MPIX_COLL_TABLE: $scratch/table:5: blocks 'many'" "$scratch/output" || { failed=1; cat "$scratch/output"; }
expect "no table" 1 "MPIX_COLL_TABLE=$scratch/none: expected a file that mpix-tune has written, or none" \
  MPIX_COLL_TABLE="$scratch/none" "$program" 64

quick=(--rounds=1 --limit=0.1 --from=32 --to=16k)
expect "mpix-tune" 0 "" "$tune" "${quick[@]}" --out="$scratch/tuned"
for kind in bcast reduce allreduce reduce_scatter_block allgather alltoall; do
  grep -q "^$kind $ranks 1 [0-9]*k* \(lines\|direct\) 0$" "$scratch/tuned" || { failed=1; echo "FAILED: no $kind"; }
done
cat "$scratch/tuned"
expect "what mpix-tune writes is a table" 0 $'64 \n16384 ' MPIX_COLL_TABLE="$scratch/tuned" "$program" 64 16384
# shellcheck disable=SC2086
$MPIEXEC env MPIX_COLL_TABLE="$scratch/tuned" "$tune" "${quick[@]}" --check --only=bcast > "$scratch/output" 2>&1
grep -q '^[0-9]* of 9 within 1.05 of the best; worst [0-9.]*$' "$scratch/output" || { failed=1; cat "$scratch/output"; }
expect "mpix-tune, wrong option" 1 "mpix-tune: --only: expected names of collectives" "$tune" --only=gather
for wrong in --only= --out= --from=24 --from=64k\ --to=64 --to=2g --rounds=0 --rounds=1000000000000 --limit=1e9 --check\ -o\ x; do
  # shellcheck disable=SC2086 # words
  expect "mpix-tune $wrong" 1 "mpix-tune: --" "$tune" $wrong
done
expect "mpix-tune, nowhere to write, which is seen first" 1 "mpix-tune: $scratch/none/x: No such file or directory" \
  timeout 20 "$tune" --limit=10000 --rounds=1000 --out="$scratch/none/x"

tune_script=$(dirname "$0")/../../scripts/tune
if ((ranks == 2)); then
  "$tune_script" --build "${tune%/*}" --mpiexec "${MPIEXEC/-n $ranks/}" --ranks 2,3 --out "$scratch/of/both.tbl" -- \
    "${quick[@]}" --only=bcast > "$scratch/output" 2>&1 || { failed=1; cat "$scratch/output"; }
  grep -q "^tune: $scratch/of/both.tbl: [2-9] lines" "$scratch/output" || { failed=1; cat "$scratch/output"; }
  for wrong in 2,,3 1 "2;3" abc ,; do
    "$tune_script" --build "${tune%/*}" --ranks "$wrong" --out "$scratch/of/both.tbl" > "$scratch/output" 2>&1 &&
      { failed=1; echo "FAILED: scripts/tune --ranks $wrong"; }
    grep -q -e "--ranks $wrong: expected" "$scratch/output" || { failed=1; cat "$scratch/output"; }
  done
  for wrong in --help --check -ox --out=x; do
    "$tune_script" --build "${tune%/*}" --ranks 2 --out "$scratch/of/both.tbl" -- "$wrong" > "$scratch/output" 2>&1 &&
      { failed=1; echo "FAILED: scripts/tune -- $wrong"; }
  done
  expect "scripts/tune" 0 "64 " MPIX_COLL_TABLE="$scratch/of/both.tbl" "$program" 64
fi
exit "$failed"
