#!/bin/sh
# Stands in for odbd in the tests of odbrun. $FAKE_ODBD says how it behaves, $FAKE_ODBD_LOG is a file
# that gets its arguments, its pid, and "drained" when SIGTERM ended it.
echo "args $*" >> "$FAKE_ODBD_LOG"
while [ $# -gt 0 ]; do
  case $1 in
    --socket) socket=$2 ;;
    --ready-fd) ready=$2 ;;
  esac
  shift
done
echo "pid $$" >> "$FAKE_ODBD_LOG"
echo "odbd's stdout"
: > "$socket"

case $FAKE_ODBD in
  stubborn) trap '' TERM ;;
  *) trap 'echo drained >> "$FAKE_ODBD_LOG"; exit 0' TERM ;;
esac
case $FAKE_ODBD in
  refuses) echo "odbd: no such field" >&2; exit 78 ;;
  exits) exit 0 ;;
  never_ready) ;;
  *) echo ready > "/dev/fd/$ready" ;;
esac
while :; do
  sleep 1000 &
  wait $!
done
