#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# Check the epoch protocol with the model checker spin: on a node (epoch.pml), posts that ride between nodes
# (riding.pml), where the first one tells where messages go, and messages of kernels (relay.pml); and notifications
# between ranks inside kernels (lanes.pml), and what they put to other nodes (far.pml); and collectives on streams
# (collective.pml, packs.pml, tree.pml, guarded.pml, staged.pml, copied.pml), and between nodes (rail.pml, rounds.pml);
# and channels between kernels and the CPU (channel.pml), and blocks that wait for the same flag (flags.pml); and
# messages of halos by memory (halo.pml), and meetings of blocks (meeting.pml). What is checked is said there.
# "verify": the whole state space, no error. "control": a rule of the protocol is left out, and spin must find
# a violation of the named property; a model that cannot fail proves nothing.
#
# As many searches run at once as there are cores, 8 at most: each may need 2 GiB. Output is in the order of this file.
#
# exit status: 0 all as expected, 1 not, 77 spin or a C compiler is missing

quick_compiler=${CC:-}
CC=${CC:-cc}
command -v spin >/dev/null || { echo "skipped: no spin in PATH"; exit 77; }
command -v "${CC%% *}" >/dev/null || { echo "skipped: no C compiler ($CC)"; exit 77; }

if [ ! "$quick_compiler" ]; then
  quick_compiler=$CC
  ! command -v tcc >/dev/null || [ "${LIBMPIX_TEST_LONG:-}" ] || quick_compiler=tcc
fi
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
workers=
# shellcheck disable=SC2086  # a list
trap 'kill $workers 2>/dev/null; exit 1' HUP INT TERM
cd "$scratch" || exit 1
model=epoch
is_wide=no
number=0

# Each worker reads the whole list below, and does of it what no other has begun.
begin() {
  number=$((number + 1))
  cd "$scratch" && mkdir "$(printf %03d "$number")" 2>/dev/null && cd "$(printf %03d "$number")" || return 1
}

# shellcheck disable=SC2086  # a compiler may have arguments
compile() {
  with=$1
  shift
  $with -w -DNOFAIR -DCOLLAPSE -DVECTORSZ=1024 -DMEMLIM=2048 "$@" -o pan pan.c
}

# explore "PARAMETERS OF THE MODEL" "OPTIONS OF THE COMPILER" [pan option]...: the checker's report in ./report
# Optimizing takes longer than what it saves but for wide searches; and tcc, where it is there, a twentieth of the time
# of other compilers, for programs that run as long as theirs that are not optimized (and search as many states, as was compared); what it
# cannot compile they do.
# Of the models, packs.pml alone has its counterexamples behind what is tried last.
# -DNAME=A:B is A, and B with LIBMPIX_TEST_LONG=1.
explore() {
  options="-O0 $2"
  compiler=$quick_compiler
  [ "$is_wide" = no ] || compiler=$CC options="$options -O1"
  if [ "${LIBMPIX_TEST_LONG:-}" ]; then kept='\2'; else kept='\1'; fi
  parameters=$(echo "$1" | sed "s/=\([0-9]*\):\([0-9]*\)/=$kept/g")
  shift 2
  case $name:$model in control:*:packs) options="$options -DT_REVERSE" ;; esac
  # shellcheck disable=SC2086  # lists of options
  spin -a -P"$CC -E -x c" $parameters "$here/$model.pml" >report 2>&1 &&
    { compile "$compiler" $options || compile "$CC" $options; } >>report 2>&1 &&
    ./pan -b -n -m100000 "$@" >>report 2>&1
}

states() { sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' report 2>/dev/null; }

# outcome NAME good|bad TEXT
outcome() {
  {
    printf '%-49s %9s states  %s\n' "$1" "$(states)" "$3"
    [ "$2" = good ] || sed 's/^/    /' report
  } >text
  echo "$2" >verdict
}

passed() {
  grep -q 'errors: 0$' report && ! grep -Eq 'not completed|depth too small|out of memory' report
}

# verify NAME PARAMETER...
verify() {
  begin || return
  name=$1
  shift
  explore "$*" -DSAFETY
  if passed; then outcome "$name" good ok; else outcome "$name" bad FAILED; fi
}
# The same, of half a million states or more
verify_wide() {
  is_wide=yes
  verify "$@"
  is_wide=no
}

# verify_long NAME PARAMETER...: with LIBMPIX_TEST_LONG=1 only, as it takes a minute or more
verify_long() {
  if [ "${LIBMPIX_TEST_LONG:-}" ]; then
    verify_wide "$@"
  elif begin; then
    outcome "$1" good 'skipped: long (LIBMPIX_TEST_LONG=1)'
  fi
}

# control NAME PROPERTY PARAMETER...: the property is one that the model names
control() {
  begin || return
  name="control: $1" property=$2
  shift 2
  case $property in # as spin prints the assertion
    overwrite) violation='assertion violated.*\(closed+\|copied\[\)' ;;
    exposed) violation='assertion violated.*\(opened\|points.*\)==.*closed==' ;;
    fresh) violation='assertion violated.*\(truth\[\|v%2\|head\[(\|word_seen==\)' ;;
    whole) violation='assertion violated.*\(window\[\|landing\[\|].known\|known\[\|data\[\|(data\[\|answer\[\|sent\[\|received\[\|result\[\)' ;;
    over) violation='assertion violated.*ended\[' ;;
    deadlock) violation='invalid end state' ;;
    emptied) violation='assertion violated ( *!(rank\|assertion violated.*\(moved\[\|head\[to\)' ;;
    found) violation='assertion violated.*].record' ;;
    counted) violation='assertion violated.*].opened' ;;
    order) violation='assertion violated.*].matched' ;;
    flushed) violation='assertion violated.*].data==' ;;
    there) violation='assertion violated.*\(_there\[\|given\[\)' ;;
    alone) violation='assertion violated.*is_read\[' ;;
    unread) violation='assertion violated.*\(\(line\|said\|place\|reply\|part\)_read\[\|taken\[\)' ;;
  esac
  ends=-E  # invalid ends are not looked for
  [ "$property" != deadlock ] || ends=
  # shellcheck disable=SC2086  # an option, or none
  explore "$*" -DSAFETY $ends
  if grep -q "^pan:.*$violation" report; then
    outcome "$name" good "counterexample found as expected: $property"
  else
    outcome "$name" bad "FAILED: no counterexample to '$property'"
  fi
}

# verify_ends NAME PARAMETER...: a run that never ends would be a cycle of states. No state is marked as progress, so
# this search reports any.
verify_ends() {
  begin || return
  name=$1
  shift
  explore "$*" -DNP -l
  if passed && grep -q 'non-progress cycles.*+' report; then outcome "$name" good ok; else outcome "$name" bad FAILED; fi
}

work() {
verify 'halo, 2 ranks, D=1'                    -DD=1 -DEPOCHS=5
verify_wide 'halo, 2 ranks, D=2'               -DD=2 -DEPOCHS=5
verify_wide 'halo, 2 ranks, D=3'               -DD=3 -DEPOCHS=4:5
verify_wide 'halo, 2 ranks, two lines, D=1'    -DD=1 -DEPOCHS=3:4 -DL=2 -DK=3
verify 'halo, 2 ranks, eager alone'            -DD=2 -DEPOCHS=6 -DWAYS=EAGER
verify 'halo, 2 ranks, direct alone'           -DD=2 -DEPOCHS=8 -DWAYS=DIRECT
verify_wide 'halo, 2 ranks, packs, D=1'        -DD=1 -DEPOCHS=4:5 -DWAYS=7
verify 'halo, 2 ranks, packs, D=4'             -DD=4 -DEPOCHS=5 -DWAYS=5 -DL=0
verify 'pipeline of 2 ranks, packs, D=4'       -DD=4 -DEPOCHS=6 -DWAYS=5 -DPROGRAM=PIPELINE
verify 'fused, 2 ranks, D=1'                   -DD=1 -DEPOCHS=5 -DPROGRAM=FUSED
verify_wide 'fused, 2 ranks, D=2'              -DD=2 -DEPOCHS=5 -DPROGRAM=FUSED
verify 'ping-pong, D=1'                        -DD=1 -DEPOCHS=6 -DPROGRAM=PINGPONG
verify 'producer and consumer, D=2'            -DD=2 -DEPOCHS=8 -DPROGRAM=PIPELINE
verify 'producer and consumer, D=3'            -DD=3 -DEPOCHS=9 -DPROGRAM=PIPELINE
verify_wide 'pipeline of 3 ranks, D=2'         -DRANKS=3 -DD=2 -DEPOCHS=3 -DPROGRAM=PIPELINE
verify 'ring of 3 ranks, D=1'                  -DRANKS=3 -DD=1 -DEPOCHS=4 -DPROGRAM=RING -DL=0
verify_long 'ring of 3 ranks, eager, D=2'      -DRANKS=3 -DD=2 -DEPOCHS=2 -DPROGRAM=RING -DWAYS=EAGER
verify_wide 'halo, 3 ranks, eager, D=1'        -DRANKS=3 -DD=1 -DEPOCHS=2 -DL=0 -DWAYS=EAGER
verify_long 'halo, 3 ranks, direct, D=1'            -DRANKS=3 -DD=1 -DEPOCHS=1 -DL=0 -DWAYS=DIRECT

# Flags repeat: K / gcd(K, D) just above ROUNDS * L, then just not.
verify  'flags repeat: D=1 L=2 K=3'                  -DPROGRAM=PIPELINE -DEPOCHS=10 -DD=1 -DL=2 -DK=3
control 'flags repeat too soon: D=1 L=2 K=2'   fresh -DPROGRAM=PIPELINE -DEPOCHS=10 -DD=1 -DL=2 -DK=2
verify_wide 'flags repeat: D=2 L=2 K=3'             -DPROGRAM=PIPELINE -DEPOCHS=10 -DD=2 -DL=2 -DK=3
control 'flags repeat too soon: D=2 L=2 K=4'   fresh -DPROGRAM=PIPELINE -DEPOCHS=10 -DD=2 -DL=2 -DK=4
verify  'flags repeat: D=1 L=1 K=3, ROUNDS=2'        -DPROGRAM=PIPELINE -DEPOCHS=12 -DD=1 -DK=3 -DROUNDS=2
control 'flags repeat too soon: K=2, ROUNDS=2' fresh -DPROGRAM=PIPELINE -DEPOCHS=12 -DD=1 -DK=2 -DROUNDS=2
control 'no scrub'                             fresh -DPROGRAM=PIPELINE -DEPOCHS=10 -DD=1 -DL=2 -DK=3 -DNO_SCRUB

control 'no wait for the credit'                  overwrite -DPROGRAM=PIPELINE -DNO_CREDIT
control 'no wait for the credit, halo, D=1'       overwrite -DD=1 -DNO_CREDIT
control 'post before the slot is read'            overwrite -DPROGRAM=PIPELINE -DWAYS=EAGER -DEARLY_POST
control 'scrub visible after the post'            deadlock  -DPROGRAM=PIPELINE -DWAYS=EAGER -DLATE_SCRUB
control 'one credit too many'                     overwrite -DPROGRAM=PIPELINE -DGENEROUS_CREDIT
control 'packs of as many epochs as slots'        overwrite -DD=4 -DEPOCHS=6 -DWAYS=5 -DPROGRAM=PIPELINE -DGENEROUS_PACKS
control 'direct data before the post'             exposed   -DNO_POST
control 'header visible before direct data'       whole     -DRELAXED_HEADER
control 'one credit too few'                      deadlock  -DD=1 -DMEAN_CREDIT

# No control: send e + 1 follows wait e, which follows the peer's wait e - 1, so two slots never lack a credit.
verify_wide 'halo, 2 ranks, D=2, credits not waited for' -DD=2 -DEPOCHS=5 -DNO_CREDIT

verify_wide 'free posts, halo, D=1'               -DFREE -DD=1 -DEPOCHS=3 -DL=0
verify  'free posts, halo, direct alone, D=2'      -DFREE -DD=2 -DEPOCHS=4 -DWAYS=DIRECT
verify_wide 'free posts, fused, D=1'              -DFREE -DD=1 -DEPOCHS=3 -DPROGRAM=FUSED -DL=0
verify  'free posts, producer and consumer, D=2'   -DFREE -DD=2 -DEPOCHS=6 -DPROGRAM=PIPELINE
verify  'free posts, wait before complete'         -DFREE -DD=2 -DEPOCHS=3 -DPROGRAM=AWAIT -DL=0
control 'nobody raises free posts'            deadlock  -DFREE -DD=2 -DEPOCHS=2 -DPROGRAM=AWAIT -DNO_RAISE
control 'a raise goes back'                   deadlock  -DFREE -DD=1 -DPROGRAM=PIPELINE -DRAISE_STORES
control 'a raise before its point'            exposed   -DFREE -DD=2 -DPROGRAM=PIPELINE -DWAYS=DIRECT -DRAISE_EARLY

verify_ends 'producer and consumer, every run ends' -DPROGRAM=PIPELINE

model=riding
for program in HALO MIXED PINGPONG MESSAGES; do
  for slots in 1 2; do
    verify "riding posts, $program, D=$slots"        -DPROGRAM=$program -DD=$slots -DEPOCHS=3
  done
done
verify_wide 'riding posts, STREAMS, D=1'       -DPROGRAM=STREAMS -DD=1 -DEPOCHS=3
verify 'riding posts, STREAMS, D=2'            -DPROGRAM=STREAMS -DD=2 -DEPOCHS=2

control 'nobody sends late posts'              deadlock  -DPROGRAM=MESSAGES -DNO_LATE_POSTS
control 'no look at fronts'                    deadlock  -DNO_FRONTS
control 'a post rides in what cannot start'    deadlock  -DRIDES_EARLY
control 'numbers in fronts are added'          counted   -DRIDDEN_ADDS
control 'riding posts, no wait for the credit' emptied   -DNO_CREDIT
control 'wipe after the post'                  emptied   -DLATE_WIPE
control 'the first message before it is told'  found     -DEAGER_FIRST
control 'told before the record is there'      found     -DSIGNAL_FIRST
control 'the first post rides'                 deadlock  -DFIRST_RIDES

model=relay
verify 'relayed messages, whole'                  -DCHUNKS=1 -DEPOCHS=4
verify 'relayed messages, in two chunks'          -DCHUNKS=2 -DEPOCHS=3
verify 'relayed messages, two inboxes'            -DCHUNKS=1 -DEPOCHS=5 -DINBOXES=2
control 'sent two posts ahead'                    emptied   -DCHUNKS=1 -DEPOCHS=5 -DINBOXES=2 -DGENEROUS
control 'one arrival for two inboxes'             deadlock  -DCHUNKS=1 -DEPOCHS=5 -DINBOXES=2 -DONE_ARRIVAL
control 'packed before the epoch before is over'  whole     -DCHUNKS=1 -DNO_ALLOWED
control 'the same, in two chunks'                 whole     -DNO_ALLOWED
control 'allowed when all has started'            whole     -DALLOWED_EARLY
control 'allowed when the first chunk is over'    whole     -DALLOWED_BY_FIRST
control 'sent before the post'                    emptied   -DCHUNKS=1 -DNO_POST
control 'posted before the wait'                  emptied   -DCHUNKS=1 -DPOST_EARLY
control 'handed on before its stores are seen'    whole     -DCHUNKS=1 -DNO_FENCE
control 'handed on by the first part'             whole     -DCHUNKS=1 -DFIRST_PART
control 'a chunk sent when the first is packed'   whole     -DNO_FLAG
control 'a chunk moved when the first has landed' whole     -DNO_LANDED
control 'a message signalled before it is there'  whole     -DCHUNKS=1 -DSIGNAL_FIRST
control 'a chunk is lost'                         deadlock  -DLOSE_CHUNK

model=lanes
verify_wide 'lanes, 2 ranks'                      -DCOUNT=4
verify 'lanes, 2 ranks, five each'                -DCOUNT=5 -DWAYS=IN_LINES -DLINES=3
verify 'lanes, 3 ranks, data in lines'            -DRANKS=3 -DCOUNT=3 -DWAYS=IN_LINES -DLINES=3
verify 'lanes, to oneself'                        -DPROGRAM=SELF -DMATES -DCOUNT=4
verify_wide 'lanes, puts before notifications'    -DPROGRAM=PUTS -DCOUNT=2:3 -DWAYS=ALL
verify 'lanes, 2 ranks send through one'          -DPROGRAM=STAR -DRANKS=3 -DMATES -DCOUNT=1
verify 'lanes, 2 through one, direct data'        -DPROGRAM=STAR -DRANKS=3 -DMATES -DCOUNT=2 -DWAYS=DIRECT
verify 'lanes, of who has finished'               -DPROGRAM=AHEAD -DCOUNT=5
verify 'flush, 1 rank'                            -DPROGRAM=FLUSH -DCOUNT=4
verify 'flush, 2 ranks, one lane'                 -DPROGRAM=FLUSH -DRANKS=3 -DMATES -DCOUNT=1
verify 'flush, 2 ranks, one lane, many targets'   -DPROGRAM=FLUSH -DRANKS=3 -DMATES -DCOUNT=1 -DMANY_TARGETS
verify 'flush, all places are taken'              -DPROGRAM=FLUSH -DCOUNT=1 -DPENDING=1
verify 'flush of each other, two kernels'         -DPROGRAM=EXCHANGE -DCOUNT=3
verify_wide 'barrier, 2 ranks'                    -DPROGRAM=BARRIER -DCOUNT=3
verify_wide 'barrier, 3 ranks, 2 processes'       -DPROGRAM=BARRIER -DRANKS=3 -DMATES -DCOUNT=1
verify 'barrier, a process without ranks'         -DPROGRAM=BARRIER -DRANKS=2 -DMATES
verify 'flush and barrier'                        -DPROGRAM=CLOSE -DCOUNT=3

control 'who finds a lane full does not read'     deadlock  -DNO_DRAIN
control 'who is in a barrier does not read'       deadlock  -DPROGRAM=BARRIER -DNO_DRAIN_IN_BARRIER
control 'no look for room'                        emptied   -DCOUNT=3 -DNO_CREDIT
control 'one line of room too many'               emptied   -DCOUNT=3 -DGENEROUS
control 'room before the data were read'          emptied   -DCOUNT=3 -DWAYS=IN_LINES -DROOM_FIRST
control 'lines given out by a load and a store'   emptied   -DPROGRAM=STAR -DRANKS=3 -DMATES -DCOUNT=1 -DNO_ATOMIC_ADD
control 'data of any lap'                         fresh     -DEARLY_LAP
control 'an entry of any lap'                     fresh     -DCOUNT=3 -DEARLY_ENTRY
control 'no fence behind direct data'             whole     -DNO_FENCE
control 'no fence behind earlier puts'            whole     -DPROGRAM=PUTS -DNO_FENCE_OF_PUTS
control 'no fence of the target'                  whole     -DNO_ACQUIRE
control 'the same, where earlier puts were'       whole     -DPROGRAM=PUTS -DNO_ACQUIRE_AFTER_PUTS
control 'who has read does not tell of puts'      whole     -DPROGRAM=PUTS -DWAYS=ALL -DMUTE_READS
control 'puts forgotten in any barrier'           whole     -DPROGRAM=BARRIER -DRANKS=3 -DMATES -DCOMM=DEVICE \
                                                            -DWAYS=IN_LINES -DFORGETS_PUTS
control 'not the oldest that is pending'          order     -DCOUNT=4 -DNOT_THE_OLDEST
control 'no fence between moved data and room'    flushed   -DPROGRAM=FLUSH -DROOM_UNFENCED
control 'flush without an entry of its own'       flushed   -DPROGRAM=FLUSH -DFLUSHES_WITHOUT_AN_ENTRY
control 'flush does not wait'                     flushed   -DPROGRAM=FLUSH -DNO_FLUSH
control 'lanes read for who has not finished'     alone     -DPROGRAM=AHEAD -DCOUNT=3 -DNO_LOCK
control 'lock seen free, and lanes read'          alone     -DPROGRAM=FLUSH -DLOCK_NOT_HELD
control 'flush does not read for who has finished' deadlock -DPROGRAM=FLUSH -DNO_READ_FOR
control 'nor does who finds a lane full'          deadlock  -DPROGRAM=AHEAD -DCOUNT=3 -DNO_READ_FOR_ROOM
control 'a flush takes a place'                   deadlock  -DPROGRAM=FLUSH -DCOUNT=1 -DPENDING=1 -DFLUSH_TAKES_A_PLACE
control 'finish keeps the lock'                   deadlock  -DPROGRAM=FLUSH -DLOCK_KEPT
control 'init takes the lock without a fence'     whole     -DPROGRAM=FLUSH -DNO_LOCK_ACQUIRE
control 'no fence before a barrier'               whole     -DPROGRAM=BARRIER -DNO_BARRIER_FENCE
control 'no fence behind a barrier'               whole     -DPROGRAM=BARRIER -DNO_BARRIER_ACQUIRE
control 'a process without ranks is awaited'      deadlock  -DPROGRAM=BARRIER -DMATES -DNO_FILL
control 'a barrier of a process awaits others'    deadlock  -DPROGRAM=BARRIER -DRANKS=3 -DMATES -DCOMM=DEVICE -DNO_FILL
control 'too few places for what is pending'      deadlock  -DCOUNT=3 -DPENDING=1

model=far
verify_wide 'links, ring of 4'                    -DCOUNT=5
verify 'links, ring of 3'                         -DRING=3
verify 'a put for a third, barrier'               -DPROGRAM=THIRD
verify 'puts and gets in both directions'         -DPROGRAM=CROSSING

control 'a number before its message'             whole     -DSIGNAL_FIRST
control 'no look for room in the ring'            whole     -DNO_CREDIT
control 'data that look like a number'            whole     -DNO_CLEAR
control 'room before the numbers are gone'        deadlock  -DCREDIT_FIRST
control 'a barrier without a flush'               whole     -DPROGRAM=THIRD -DNO_FLUSH
control 'a get keeps back what is behind it'      deadlock  -DPROGRAM=CROSSING -DKEEP_BACK

model=collective
verify_long 'collectives, 3 calls'                -DCALLS=3
verify_wide 'collectives, all kinds'               -DCALLS=3:4 -DTOGETHER
verify_wide 'collectives, rooted calls'           -DCALLS=3:4 -DTOGETHER -DKINDS=ROOTED
verify_wide 'collectives, calls of a step'        -DCALLS=4:5 -DTOGETHER -DSTEPS=1
verify 'collectives, 6 broadcasts of a step'      -DCALLS=6 -DTOGETHER -DSTEPS=1 -DKINDS=FROM
verify_wide 'collectives, 3 calls of up to 3 steps'    -DCALLS=3 -DTOGETHER -DSTEPS=3
verify_wide 'collectives, 2 ranks'                -DCALLS=4:5 -DTOGETHER -DRANKS=2
verify_long 'collectives, 2 parts'                -DCALLS=3 -DTOGETHER -DRANKS=2 -DPARTS=2
verify_wide 'collectives, 2 parts, two of said'   -DTOGETHER -DRANKS=2 -DPARTS=2 -DSTEPS=1 -DSAIDS=2 -DANY_LATER

control 'one sub-slot'                            unread    -DCALLS=2 -DSUBSLOTS=1
control 'one sub-slot, all to all'                unread    -DCALLS=2 -DSUBSLOTS=1 -DKINDS=ALL
control 'no look who began the call before'       unread    -DNO_SAID
control 'no look who began its last step'         unread    -DNO_STARTED
control 'no look who began the step before'       unread    -DNO_STARTED_WITHIN
control 'two streams without order'               unread    -DTWO_STREAMS
control 'the same, all to all'                    unread    -DTWO_STREAMS -DKINDS=ALL -DSTEPS=1
control '2 parts, two places of said'             deadlock  -DTOGETHER -DRANKS=2 -DPARTS=2 -DSTEPS=1 -DSAIDS=2
control '2 parts, one has no line in a step'      unread    -DTOGETHER -DRANKS=2 -DPARTS=2 -DNOTHING_IN_SHORT_ENDS

model=packs
verify_wide 'packs, 2 calls of up to 3 steps'     -DCALLS=2 -DSHARES
verify_wide 'packs, 3 calls, all to all'          -DSTEPS=2 -DKINDS=ALL -DSHARES
verify_long 'packs, 2 calls of up to 4 steps'     -DCALLS=2 -DSTEPS=4 -DSHARES
verify_wide 'packs, a call in shares, 3 ranks'    -DRANKS=3 -DCALLS=1 -DSTEPS=8 -DSHARES
verify_long 'packs, 2 calls in shares from a root, 3 ranks' -DRANKS=3 -DCALLS=2 -DSTEPS=4 -DSHARES -DKINDS=FROM
verify_long 'packs, 2 calls in shares to a root, 3 ranks' -DRANKS=3 -DCALLS=2 -DSTEPS=4 -DSHARES -DKINDS=TO
verify_long 'packs, 3 calls of a step'            -DSTEPS=1

control 'packs, one place'                        unread    -DSTEPS=2 -DPLACES=1
control 'packs, no look who began the call before' unread   -DSTEPS=1 -DKINDS=FROM -DNO_SAID
control 'packs, several steps from a root'        unread    -DSTEPS=2 -DKINDS=FROM -DROOTED_STEPS
control 'packs, none without data'                unread    -DCALLS=2 -DNOTHING_WITHOUT_DATA
control 'packs, shares of others not awaited'     unread    -DCALLS=2 -DSTEPS=4 -DKINDS=ALL -DSHARES -DNO_SECOND_HALF
control 'packs, shares, all ahead in one place'   unread    -DCALLS=2 -DSTEPS=4 -DKINDS=ALL -DSHARES -DALWAYS_AHEAD
control 'packs, shares, the root hears nothing'   unread    -DCALLS=2 -DSTEPS=4 -DKINDS=FROM -DSHARES -DNOTHING_FOR_THE_ROOT
control 'packs, shares, few tell in one place'    unread    -DRANKS=3 -DCALLS=1 -DSTEPS=6 -DKINDS=FROM -DSHARES -DONE_TURN_IS_ENOUGH
control 'packs, shares, few tell in the first turn' unread  -DRANKS=3 -DCALLS=2 -DSTEPS=2 -DKINDS=FROM -DSHARES -DNO_FIRST_TURN
control 'packs, shares, few tell in the last turn' unread   -DRANKS=3 -DCALLS=2 -DSTEPS=2 -DKINDS=TO -DSHARES -DNO_LAST_TURN

model=guarded
verify 'calls behind guards'                       -DPARTS=1
verify 'calls behind guards, 2 parts'              -DRANKS=2
verify_wide 'calls behind guards, 3 ranks, 2 parts'

control 'a call counted before all is told'        there     -DRANKS=2 -DCOUNT_EARLY
control 'receives without a guard'                 there     -DRANKS=2 -DNO_GUARD
control 'one place of data'                        whole     -DRANKS=2 -DONE_PLACE
control 'one word of what came'                    deadlock  -DPARTS=1 -DONE_WORD
control 'a guard that waits for the next call'     deadlock  -DRANKS=2 -DGUARD_WANTS_THE_NEXT
control 'parts counted that were launched'         deadlock  -DRANKS=2 -DCOUNT_LAUNCHED_ONLY

model=staged
verify 'staged calls, 2 ranks'                     -DRANKS=2 -DPIECES=4
verify 'staged calls, 3 ranks'

control 'staged, a part before all have come'      there     -DRANKS=2 -DNOT_ALL_ARRIVED
control 'staged, on before all are done'           whole     -DRANKS=2 -DNOT_ALL_DONE
control 'staged, sent before the copies out'       whole     -DRANKS=2 -DCOPIED_OUT_LATE
control 'staged, taken behind the go'              deadlock  -DRANKS=2 -DTAKEN_LATE
control 'staged, go cleared behind what is sent'     deadlock  -DRANKS=2 -DCLEARED_BEHIND_SENT
control 'staged, over cleared behind the go'       over      -DRANKS=2 -DOVER_LATE

model=copied
verify 'copied calls, 2 ranks'
verify 'copied calls, 2 ranks, one attached'       -DATTACHED -DCALLS=3
verify 'copied calls, 2 ranks, 3 places'           -DPLACES=3 -DPIECES=4
verify_long 'copied calls, 3 ranks'                     -DRANKS=3 -DCALLS=1

control 'copied, before all have come'             there     -DATTACHED -DNOT_ALL_ARRIVED
control 'copied, on before all are done'           there     -DATTACHED -DNOT_ALL_DONE
control 'copied, a place filled before it is free' whole     -DNOT_TAKEN
control 'copied, pieces of the call before'        whole     -DNO_NUMBERS
control 'copied, blocks replaced at once'          emptied   -DREPLACED_AT_ONCE

model=tree
verify_wide 'calls along trees'
verify_wide 'calls along trees, 4 ranks, a call'   -DRANKS=4 -DCALLS=1

control 'the next piece before all have ended'     whole     -DNO_ENDED
control "a parent's word for another child"        whole     -DONE_WORD_FOR_ALL

model=rail
verify_wide 'exchanges between nodes'              -DCOUNT=6

control 'a message before the last one came'       unread    -DTOO_EARLY
control 'a message two ahead of those that came'   unread    -DONE_BEHIND
control 'a place that the network still reads'     unread    -DNO_LEFT
control 'a number before its data'                 whole     -DSIGNAL_FIRST
control 'one place'                                whole     -DPLACES=1
control 'a message after the same one came'        deadlock  -DTOO_LATE

model=rounds
verify_wide 'exchanges in rounds'
verify_wide 'exchanges in rounds, a place by two routes' -DFREE=3 -DNO_GATHERED
verify_long 'exchanges in rounds, of all kinds'    -DFREE=3

control 'rounds, begun before all began the last'  unread    -DTOO_EARLY
control 'rounds, while what was passed on is read' whole     -DSTILL_PASSED_ON
control 'rounds, a place that the network reads'   unread    -DNO_LEFT
control 'rounds, a number before its data'         whole     -DSIGNAL_FIRST
control 'rounds, passed on before it came'         whole     -DBEFORE_IT_CAME
control 'rounds, one place'                        unread    -DPLACES=1 -DFREE=1
control 'rounds, begun when all have'              deadlock  -DTOO_LATE

model=channel
verify 'channel, lanes, 1 place'                  -DREPLIES=NO -DDEPTH=1
verify_wide 'channel, lanes, 2 places'            -DREPLIES=NO -DDEPTH=2 -DCOUNT=2:3
verify_wide 'channel, lanes, 1 in a row'          -DREPLIES=NO -DDEPTH=2 -DMOST=1 -DCOUNT=2:3
verify 'channel, queue, 1 place'                  -DREPLIES=NO -DDEPTH=1 -DQUEUE
verify_wide 'channel, queue, 2 places'            -DREPLIES=NO -DDEPTH=2 -DQUEUE
verify_wide 'channel, queue, 3 lanes'             -DREPLIES=NO -DDEPTH=1 -DQUEUE -DLANES=3 -DCOUNT=2
verify_wide 'channel, replies by others'          -DLANES=1 -DDEPTH=2 -DCOUNT=4
verify 'channel, replies at once'                 -DLANES=1 -DDEPTH=2 -DCOUNT=5 -DREPLIES=AT_ONCE
verify 'channel, replies, queue'                  -DDEPTH=1 -DCOUNT=2 -DREPLIES=AT_ONCE -DQUEUE
verify 'channel, tags repeat, 1 place'            -DREPLIES=NO -DLANES=1 -DDEPTH=1 -DCOUNT=6 -DTAGS=4
verify 'channel, tags repeat, 2 places'           -DREPLIES=NO -DLANES=1 -DDEPTH=2 -DCOUNT=10 -DTAGS=4
verify 'channel, tags repeat, queue'              -DREPLIES=NO -DDEPTH=2 -DCOUNT=3 -DTAGS=4 -DQUEUE
verify_ends 'channel, queue, every run ends'      -DREPLIES=NO -DDEPTH=1 -DQUEUE -DCOUNT=2
verify_ends 'channel, replies, every run ends'    -DLANES=1 -DDEPTH=1 -DCOUNT=3

control 'channel, no look for room'               overwrite -DREPLIES=NO -DNO_CREDIT
control 'the same, in a queue'                    overwrite -DREPLIES=NO -DNO_CREDIT -DQUEUE
control 'taken is published before the copy'      overwrite -DREPLIES=NO -DDEPTH=1 -DTAKEN_FIRST
control 'a ring that is left empty tells nothing' deadlock  -DREPLIES=NO -DNO_PUBLISH_WHEN_EMPTY
control 'words of any number'                     fresh     -DREPLIES=NO -DANY_WORD
control 'words are not cleared'                   fresh     -DREPLIES=NO -DLANES=1 -DDEPTH=1 -DCOUNT=5 -DTAGS=4 -DNO_CLEAR
control 'a post without a fence'                  whole     -DREPLIES=NO -DNO_FENCE
control 'the place of a reply is used too soon'   unread    -DLANES=1 -DDEPTH=1 -DREUSED_EARLY
control 'a reply before what was received'        whole     -DLANES=1 -DDEPTH=1 -DREPLY_FIRST

model=halo
verify 'messages of a halo by memory'
verify 'the same, by lines'                       -DLINES
verify 'sent ahead by one block'                  -DAHEAD -DCOUNT=7
verify 'the same, by lines'                       -DAHEAD -DCOUNT=7 -DLINES
verify 'one buffer'                               -DHALVES=1

control 'halo, no wait for room'                  unread    -DAHEAD -DNO_ROOM
control 'halo, no wait for room, by lines'        unread    -DAHEAD -DNO_ROOM -DLINES
control 'halo, an exchange too far ahead'         unread    -DAHEAD -DONE_MORE
control 'halo, room told before it is read'       unread    -DHALVES=1 -DROOM_FIRST
control 'halo, each block frees'                  unread    -DHALVES=1 -DEACH_FREES
control 'halo, told before it is packed'          whole     -DTELL_FIRST
control 'halo, each block tells'                  whole     -DEACH_TELLS
control 'halo, no fence'                          whole     -DNO_FENCE
control 'halo, sent ahead with one buffer'        deadlock  -DAHEAD -DHALVES=1

model=flags
verify 'blocks that wait for a flag'
verify 'the same, for three values'               -DBLOCKS=4 -DVALUES=3
verify 'the same, after two looks'                -DBLOCKS=4 -DLOOKS=2

control 'flags, the looker leaves without a word'  deadlock  -DNO_END
control 'flags, others are told nothing'          deadlock  -DNO_TELL
control 'flags, others are told at the end'       deadlock  -DTELL_AT_THE_END

model=meeting
verify 'meetings of 3 blocks'
verify 'meetings of 1 block'                      -DBLOCKS=1
verify 'meetings of 4 blocks'                     -DBLOCKS=4 -DMEETINGS=2:4

control 'meetings, the first adds one less'       deadlock  -DONE_LESS
control 'meetings, a wait for the bits below'     deadlock  -DWAIT_FOR_THE_REST
control 'meetings, read and written'              deadlock  -DTWO_STEPS
echo "$number" >"$scratch/listed"
}

left=$(nproc 2>/dev/null || echo 1)
[ "$left" -le 8 ] || left=8
while [ "$left" -gt 0 ]; do
  (trap - EXIT; work) &
  workers="$workers $!"
  left=$((left - 1))
done
wait
cat ./*/text
good=$(cat ./*/verdict | grep -c good)
[ "$good" -eq "$(cat listed)" ] || { echo "$good of $(cat listed) as expected"; exit 1; }
