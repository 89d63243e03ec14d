#!/bin/sh
# libodb_client.so exports exactly what its header declares.
set -u
library=$1
header=$2
exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
declared=$(grep -o 'odb_[a-z_]*(' "$header" | grep -v '^odb_[a-z_]*_t(' | tr -d '(' | sort -u)
if [ "$exported" != "$declared" ]; then
  echo "exported and declared differ:"
  echo "$exported" > exported.txt
  echo "$declared" > declared.txt
  diff exported.txt declared.txt
  exit 1
fi
if [ "$(echo "$exported" | wc -l)" -lt 15 ]; then
  echo "only these are exported: $exported"
  exit 1
fi
