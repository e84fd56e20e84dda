#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# A program of another MPI, under LD_PRELOAD of this libmpix: it ends in MPI_Init with a text that names both, and with
# exit code 1, not by a signal. Both ways to initialize MPI.
set -u
: "${LIBMPIX:?the path of libmpix.so}"
skip() { echo "skipped: $*"; exit 77; }

if ldd "$LIBMPIX" | grep -q libmpich; then
  built='MPICH' other='Open MPI' suffix=openmpi
else
  built='Open MPI' other='MPICH' suffix=mpich
fi
compiler=$(command -v mpicc.$suffix) || skip "there is no mpicc.$suffix"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/program.c" << 'EOF'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
  int provided = 0;
  printf("before\n");
  if (argc > 1)
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
  else
    MPI_Init(&argc, &argv);
  MPI_Barrier(MPI_COMM_WORLD);
  printf("after\n");
  MPI_Finalize();
  return 0;
}
EOF
"$compiler" -o "$folder/program" "$folder/program.c" || skip "mpicc.$suffix does not compile"
# not as a rank of this test's own mpiexec, which is of the other MPI
run() { env -u PMI_FD -u PMI_RANK -u PMI_SIZE -u PMI_PORT LD_PRELOAD="$1" timeout -k 5 60 "$folder/program" "${@:2}" < /dev/null; }
run '' > "$folder/out" 2>&1 || skip "a program of $other does not run here by itself"

failed=0
for how in '' threads; do
  # shellcheck disable=SC2086 # none or one
  run "$(realpath "$LIBMPIX")" $how > "$folder/out" 2> "$folder/err"
  status=$?
  cat "$folder/out" "$folder/err"
  if ((status != 1)) || grep -q after "$folder/out" || ! grep -q before "$folder/out" ||
     ! grep -q "built for $built.* the MPI library of this program is $other" "$folder/err"; then
    echo "FAILED: ${how:-MPI_Init}: status $status"
    failed=1
  fi
done

# a program that loads its MPI late, as Python does: the one that libmpix has brought along answers for it
cat > "$folder/late.c" << 'EOF'
#include <dlfcn.h>
#include <stddef.h>
int main(int argc, char **argv)
{
  int (*init)(int *, char ***);
  if (!dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) return 77;
  init = (int (*)(int *, char ***))dlsym(RTLD_DEFAULT, "MPI_Init");
  return argc == 2 && init ? init(NULL, NULL) : 1;
}
EOF
theirs=$(ldd "$folder/program" | sed -n 's/.*=> \(.*\/libmpi\(ch\)\?\.so[^ ]*\).*/\1/p')
"$compiler" -o "$folder/late.o" -c "$folder/late.c" && cc -o "$folder/late" "$folder/late.o" -ldl || failed=1
env -u PMI_FD -u PMI_RANK -u PMI_SIZE -u PMI_PORT LD_PRELOAD="$(realpath "$LIBMPIX")" timeout -k 5 60 "$folder/late" "$theirs" \
  > "$folder/out" 2>&1 < /dev/null
cat "$folder/out"
if ! grep -q "built for $built.* has loaded $theirs as well" "$folder/out"; then
  echo "FAILED: nothing is said of $theirs, which is loaded late"
  failed=1
fi
exit $failed
