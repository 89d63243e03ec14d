#!/bin/sh
# Installs the Debian packages of deploy/packages.txt that are missing, and says which. Safe to repeat; does nothing, and
# needs no network and no root, when all are there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
wanted=$(sed 's/#.*//' "$here/packages.txt")

missing=""
for package in $wanted; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
  echo "setup: all packages of deploy/packages.txt are installed"
  exit 0
fi

as_root=""
if [ "$(id -u)" != 0 ]; then
  if command -v sudo >/dev/null 2>&1; then
    as_root=sudo
  else
    echo "setup: missing packages:$missing" >&2
    echo "setup: run as root, or install sudo: apt-get install -y --no-install-recommends$missing" >&2
    exit 77
  fi
fi

echo "setup: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update &&
  # shellcheck disable=SC2086
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "setup: apt-get failed; its last lines are above" >&2
  exit 69
fi
echo "setup: done"
