#!/bin/sh
# Installs what is missing, builds odbd, trains a small model on two torchrun ranks three ways and shows what happened.
# Safe to repeat. Everything it writes lies in out/.
set -eu
cd "$(dirname "$0")/.."
sh deploy/setup.sh
sh deploy/build.sh
exec /usr/bin/python3 -B deploy/demo/demo.py "$@"
