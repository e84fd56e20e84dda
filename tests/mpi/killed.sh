#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# Runs PROGRAM (tests/mpi/killed.cpp) in all its scenarios: the last rank is killed, the others have to notice and to go
# on. Usage: killed.sh PROGRAM [SCENARIO…]; these scenarios, where any are named. Each rank has a shell around it that stays until all ranks have ended, so that
# mpiexec does not see the death, and does not end the others because of it.
set -u
program=$PWD/$1
ranks=$LIBMPIX_TEST_RANKS
skip() { echo "skipped: $*"; exit 77; }
[[ ${MPIEXEC%% *} == *mpich* || $("${MPIEXEC%% *}" --version 2> /dev/null) == *HYDRA* ]] ||
  skip "other MPIs than MPICH end a job in which a process dies"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 99' INT TERM HUP
cat > "$scratch/rank" << END
#!/usr/bin/env bash
"\$@" > $scratch/output.\$PMI_RANK 2>&1
echo \$? > $scratch/ending.\$PMI_RANK
# whole at once: one shell sees all of these and ends, and then mpiexec kills the other shells
mv $scratch/ending.\$PMI_RANK $scratch/ended.\$PMI_RANK
exec {never}<> <(:)
while ended=($scratch/ended.*); ((\${#ended[@]} < $ranks)); do read -rt 0.05 -u "\$never"; done  # starts no process
END
chmod +x "$scratch/rank"

patience=2
[[ ! ${TSAN_OPTIONS:-}${ASAN_OPTIONS:-} ]] || patience=8  # all is slower in builds with sanitizers
patience=$((patience * ${LIBMPIX_TEST_TIMEOUT_SCALE:-1}))
failed=0
scenario() {  # ON_TIMEOUT BUDGET SCENARIO BYTES
  rm -f "$scratch"/output.* "$scratch"/ended.*
  # shellcheck disable=SC2086 # MPIEXEC is a command with its options
  $MPIEXEC env MPIX_NODE_SIZE="${MPIX_NODE_SIZE:-1}" MPIX_TIMEOUT=$patience MPIX_ON_TIMEOUT="$1" MPIX_TRIGGERED_OPS="$2" \
    "$scratch/rank" "$program" "$3" "$4" > "$scratch/mpiexec" 2>&1
  local rank bad=0
  for ((rank = 0; rank < ranks - 1; rank++)); do
    [[ $(cat "$scratch/ended.$rank" 2> /dev/null) == 0 ]] || bad=1
  done
  [[ $(cat "$scratch/ended.$((ranks - 1))" 2> /dev/null) == 137 ]] || bad=1
  if ((bad)); then
    failed=1
    echo "FAILED: $* (ended with $(cat "$scratch"/ended.* | tr "\n" " "))"
    tail -n 30 "$scratch"/output.* "$scratch/mpiexec"
  else
    echo "ok: $*: $(grep -h '^survivor 0' "$scratch/output.0" | tail -n 1)"
  fi
}

for one in "${@:2}"; do
  scenario error auto "$one" 64
  scenario report auto "$one" 64
done
(($# == 1)) || exit $failed

ways="error report"
[[ ${MPIX_NIC:-} != mpi ]] || ways=error  # over messages of MPI nobody is asked for a sign of life
for how in $ways; do
  scenario "$how" auto before 64
  scenario "$how" auto idle 64
  scenario "$how" auto posted 200000
  # what a relay brings is seen when all of it is there
  [[ ${MPIX_RELAY:-} == on ]] || scenario "$how" auto inflight 30000000
  scenario "$how" auto waiting 64
  scenario "$how" 16 ahead 64
done
exit $failed
