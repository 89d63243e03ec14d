#!/bin/sh
# Installs what is missing, builds everything and runs every test. Arguments go to `bazel test`, for
# example --config=asan, or labels instead of //... . Ends with one line: N passed, N failed, N skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
sh deploy/setup.sh || exit $?
exec /usr/bin/python3 -B deploy/run_tests.py "$@"
