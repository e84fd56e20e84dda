#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
"""The heat equation on a rod in Python, with mpi4py, ctypes and stream epochs.

    mpiexec -n 4 env LD_PRELOAD=DIR/lib/libmpix.so MPIX_DEVICE=host python3 jacobi.py [steps]

libmpix has to be in front of MPI, and be built for the MPI of mpi4py (Debian's is for Open MPI). A Python program has
no link line, so LD_PRELOAD puts it there: before mpi4py loads MPI. LIBMPIX names the library where LD_PRELOAD
holds others too. The windows and puts are mpi4py's; only the stream calls go through ctypes.

Each rank has a piece of the rod, and puts its two ends to its neighbours. The functions of the stream run in a thread
of the library, which takes Python's lock for each; they may not use MPI. The result is compared with a serial one.
"""
import array
import ctypes
import os
import sys

from mpi4py import MPI

MODE_STREAM = 0x01000000  # MPIX_MODE_STREAM of mpix.h
CELLS = 50                # of a rank

# --- the calls of mpix.h. A handle of MPI is an int, or a pointer: mpi4py knows.
NOT_IN_FRONT = "jacobi.py: libmpix is not in front of MPI: LD_PRELOAD=DIR/lib/libmpix.so"
try:
    library = ctypes.CDLL(os.environ.get("LIBMPIX") or os.environ.get("LD_PRELOAD") or "libmpix.so")
except OSError:
    sys.exit(NOT_IN_FRONT)
Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def handle(of):
    kind = ctypes.c_int if MPI._sizeof(of) == ctypes.sizeof(ctypes.c_int) else ctypes.c_void_p
    return kind(MPI._handleof(of))


def call(name, *arguments):
    """MPIX_NAME(…); its error as mpi4py has errors."""
    code = getattr(library, "MPIX_" + name)(*arguments)
    if code != MPI.SUCCESS:
        raise MPI.Exception(code)


class Stream:
    def __init__(self):
        self.stream = ctypes.c_void_p()
        self.functions = []  # kept until the stream is done with them
        call("Host_stream_create", ctypes.byref(self.stream))

    def launch(self, function):
        wrapped = Function(lambda _: function())
        self.functions.append(wrapped)
        call("Host_stream_launch", self.stream, wrapped, None)

    def synchronize(self):
        call("Host_stream_synchronize", self.stream)  # ctypes gives Python's lock away meanwhile
        self.functions.clear()

    def close(self):
        call("Host_stream_destroy", ctypes.byref(self.stream))


# --- the computation
def start_at(cell):
    return 100.0 if cell % 37 == 0 else 0.0


def relax(field):
    """One step; `field` has a cell more at both ends."""
    inside = [0.25 * field[i - 1] + 0.5 * field[i] + 0.25 * field[i + 1] for i in range(1, len(field) - 1)]
    return array.array("d", [field[0], *inside, field[-1]])


def serial(cells, steps):
    field = array.array("d", [0.0] + [start_at(i) for i in range(cells)] + [0.0])
    for _ in range(steps):
        field = relax(field)
    return field


def main():
    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    active = ctypes.c_int()
    call("Query_stream_rma", ctypes.byref(active))
    if not active.value:
        sys.exit(NOT_IN_FRONT)

    left = rank - 1 if rank > 0 else MPI.PROC_NULL
    right = rank + 1 if rank + 1 < size else MPI.PROC_NULL
    group = comm.group.Incl([r for r in (left, right) if r != MPI.PROC_NULL])
    # a cell from the left, and one from the right, in memory that other ranks can map
    info = MPI.Info.Create()
    info.Set("mpi_memory_alloc_kinds", "mpix:device")
    win = MPI.Win.Allocate(16, 8, info, comm)
    info.Free()
    halo = memoryview(win.tomemory()).cast("d")
    halo[0] = halo[1] = 0.0
    ends = array.array("d", [0.0, 0.0])  # what the neighbours get
    field = array.array("d", [0.0] + [start_at(rank * CELLS + i) for i in range(CELLS)] + [0.0])

    def pack():
        ends[0], ends[1] = field[1], field[CELLS]

    def step():
        nonlocal field
        field[0], field[-1] = halo[0], halo[1]
        field = relax(field)

    stream = Stream()
    for _ in range(steps):  # nothing here waits
        call("Win_post_stream", handle(group), handle(win), stream.stream)
        stream.launch(pack)
        win.Start(group, MODE_STREAM)
        win.Put([memoryview(ends)[0:1], MPI.DOUBLE], left, 1)
        win.Put([memoryview(ends)[1:2], MPI.DOUBLE], right, 0)
        call("Win_complete_stream", handle(win), stream.stream)
        call("Win_wait_stream", handle(win), stream.stream)
        stream.launch(step)
    stream.synchronize()
    stream.close()

    expected = serial(size * CELLS, steps)
    worst = max(abs(field[i] - expected[rank * CELLS + i]) for i in range(1, CELLS + 1))
    worst = comm.allreduce(worst, MPI.MAX)
    if rank == 0:
        print(f"jacobi.py: {size} ranks, {'OK' if worst < 1e-12 else 'WRONG'}, largest difference {worst:g}")
    halo.release()
    group.Free()
    win.Free()
    return 0 if worst < 1e-12 else 1


if __name__ == "__main__":
    sys.exit(main())
