#!/bin/sh
# Builds optimised programs and puts them into out/: out/bin, out/lib, out/python. Safe to repeat.
set -eu
cd "$(dirname "$0")/.."

if ! /usr/bin/bazel build --config=opt //server/daemon:odbd //aligner/daemon:odb-aligner //client/odbctl:odbctl \
  //client/odbrun:odbrun //client/c_api:libodb_client.so //client/python:odbd \
  //server/preprocess:libodb_sentencepiece.so; then
  echo "build: failed; the compiler's message is above. deploy/setup.sh installs what the build needs" >&2
  exit 1
fi
bin=$(/usr/bin/bazel info --config=opt bazel-bin 2>/dev/null)
mkdir -p out/bin out/lib out/python/odbd
install -m 755 "$bin/server/daemon/odbd" "$bin/aligner/daemon/odb-aligner" "$bin/client/odbctl/odbctl" \
  "$bin/client/odbrun/odbrun" out/bin/
install -m 755 "$bin/client/c_api/libodb_client.so" "$bin/server/preprocess/libodb_sentencepiece.so" out/lib/
install -m 644 client/python/odbd/*.py client/python/odbd/py.typed out/python/odbd/
install -m 755 "$bin/client/python/odbd/_native.abi3.so" out/python/odbd/
echo "build: out/bin/odbd out/bin/odb-aligner out/bin/odbctl out/bin/odbrun out/lib/libodb_client.so out/lib/libodb_sentencepiece.so out/python/odbd"
