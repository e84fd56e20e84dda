#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# Two ranks on two "hosts": network namespaces of their own, joined by a cable (veth). MPI sees two nodes by itself,
# and what the epochs carry has to cross the cable, which counts it. Usage: netns.sh PROGRAM LEAST_BYTES [ARGUMENTS]
# NETNS_SAYS: a pattern that the output has to contain.
set -u
program=$PWD/$1 least=$2
shift 2
a=mpixA$$ b=mpixB$$
skip() { echo "skipped: $*"; exit 77; }

[[ ${MPIEXEC%% *} == *mpich* || $("${MPIEXEC%% *}" --version 2> /dev/null) == *HYDRA* ]] ||
  skip "starting ranks in namespaces needs MPICH's mpiexec"
command -v ip > /dev/null || skip "there is no ip command"
ip netns add "$a" 2> /dev/null || skip "network namespaces are not permitted here"
scratch=$(mktemp -d)
cleanup() { ip netns del "$a"; ip netns del "$b"; rm -r "$scratch"; } 2> /dev/null
trap cleanup EXIT
trap 'exit 99' INT TERM HUP  # what EXIT is trapped for is done

ip netns exec "$a" true 2> /dev/null || skip "nothing runs in network namespaces here (chroot?)"
# shellcheck disable=SC2015 # either may fail
ip netns add "$b" &&
  ip link add "v$a" type veth peer name "v$b" 2> /dev/null || skip "virtual Ethernet is not permitted here"
ip link set "v$a" netns "$a" && ip link set "v$b" netns "$b" || exit 99
ip netns exec "$a" ip addr add 10.77.0.1/24 dev "v$a"
ip netns exec "$b" ip addr add 10.77.0.2/24 dev "v$b"
for n in "$a" "$b"; do ip netns exec "$n" ip link set "v$n" up; ip netns exec "$n" ip link set lo up; done

# What mpiexec takes for ssh: the command, in the namespace that has the address, and with a host name of its own.
cat > "$scratch/rsh" << END
#!/bin/bash
while [[ \$1 == -* ]]; do case \$1 in -o | -l | -p) shift 2 ;; *) shift ;; esac; done
case \$1 in 10.77.0.1) n=$a ;; 10.77.0.2) n=$b ;; *) exit 1 ;; esac
shift
exec ip netns exec \$n unshare --uts /bin/sh -c "hostname \$n; \$*" < /dev/null
END
chmod +x "$scratch/rsh"

received() { ip netns exec "$b" cat "/sys/class/net/v$b/statistics/rx_bytes" 2> /dev/null || echo 0; }
before=$(received)
ip netns exec "$a" "${MPIEXEC%% *}" -launcher ssh -launcher-exec "$scratch/rsh" -iface "v$a" \
  -hosts 10.77.0.1,10.77.0.2 -ppn 1 -genvall -n 2 "$program" "$@" 2>&1 | tee "$scratch/output"
((PIPESTATUS[0] == 0)) || exit 1
grep -q "${NETNS_SAYS:-}" "$scratch/output" || { echo "expected '$NETNS_SAYS'"; exit 1; }
crossed=$(($(received) - before))
echo "$crossed bytes crossed the cable to the second rank"
((crossed >= least)) || { echo "expected $least at least"; exit 1; }
