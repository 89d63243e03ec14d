#!/bin/sh
# The command of the terminal test: echoes a line it reads, then waits for Ctrl-C and exits with the
# number of interrupts it got. The USR1 that ends it goes through odbrun (the leader of the group), so
# an interrupt that odbrun passed on would have come before it.
n=0
trap 'n=$((n+1))' INT
trap 'exit $n' USR1
stty -echo
echo 1
read -r line
echo "$line"
while [ $n = 0 ]; do sleep 0.01; done
kill -USR1 "$(cut -d' ' -f5 /proc/$$/stat)"
while :; do sleep 0.01; done
