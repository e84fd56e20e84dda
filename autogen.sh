#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
# Makes ./configure in a git checkout (a release tarball has it already).
set -e
cd "$(dirname "$0")"
exec autoreconf --force --install "$@"
