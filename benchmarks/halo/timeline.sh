#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# halo --timeline writes JSON; kernels run within their exchange, as far as the clocks agree. Usage: timeline.sh HALO,
# with $MPIEXEC for its ranks. Without python3 nobody reads it.
set -u
file=$(mktemp)
trap 'rm -f "$file"' EXIT

# shellcheck disable=SC2086 # a command
$MPIEXEC "$1" --timeline="$file" --sizes=wsmall --runs=1 --iterations=10 || exit 1
[[ -s $file ]] || { echo "FAILED: nothing was written"; exit 1; }
command -v python3 > /dev/null || { echo "not read: there is no python3"; exit 0; }
python3 - "$file" << 'END'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    trace = json.load(file)
events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
error = trace["otherData"]["clock_error_us"] + 0.002  # digits
for process in (1, 2, 3):
    mine = [event for event in events if event["pid"] == process]
    (whole,) = [event for event in mine if event["name"] == "exchange"]
    kernels = [event for event in mine if event["cat"] == "kernel"]
    for part in ("pack", "unpack"):
        numbers = [event["name"].split()[1] for event in kernels if event["name"].split()[0] == part]
        assert sorted(numbers) == ["0", "1", "2", "3"], (part, numbers)
    for event in kernels:
        assert event["dur"] >= 0, event
        assert event["ts"] >= whole["ts"] - error, (event, whole)
        assert event["ts"] + event["dur"] <= whole["ts"] + whole["dur"] + error, (event, whole)
print(len(events), "events")
END
