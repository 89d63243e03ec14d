#!/bin/sh
# Installs what is missing, builds optimised programs, runs the benchmarks of docs/benchmarks.md one after the other and prints
# what matters of them beside the targets.
#
#   sh deploy/bench.sh [--quick] [--out DIR]    DIR gets one JSON file per benchmark (default: out/bench)
set -eu
cd "$(dirname "$0")/.."
quick=""
out=out/bench
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=--quick ;;
    --out)
      [ $# -ge 2 ] || { echo "bench: --out needs a folder" >&2; exit 64; }
      out=$2
      shift
      ;;
    *)
      echo "usage: deploy/bench.sh [--quick] [--out DIR]" >&2
      exit 64
      ;;
  esac
  shift
done
sh deploy/setup.sh
mkdir -p "$out"
out=$(cd "$out" && pwd)
if ! /usr/bin/bazel build -c opt //tests/bench:planning //tests/bench:rounds //tests/bench:delivery //tests/bench:loader; then
  echo "bench: the build failed; the compiler's message is above" >&2
  exit 1
fi
failed=""
for name in planning rounds delivery loader; do
  echo "--- $name"
  rm -f "$out/$name.json"
  # shellcheck disable=SC2086
  /usr/bin/bazel run -c opt "//tests/bench:$name" -- $quick --json "$out/$name.json" || failed="$failed $name"
done
/usr/bin/python3 -B deploy/bench_table.py "$out"
[ -z "$failed" ] || { echo "bench: failed:$failed" >&2; exit 1; }
