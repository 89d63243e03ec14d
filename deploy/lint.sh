#!/bin/sh
# Formatter and shell checks over the tracked files. Ends with `N passed, N failed`.
#
#   sh deploy/lint.sh                    the checks of .ci/run
#   sh deploy/lint.sh --tidy [FILE.cc..] clang-tidy instead, over FILEs or over all (an hour); after
#                                        a build, which makes the generated headers
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0
failed=0
if [ "${1:-}" = --tidy ]; then
  shift
  /usr/bin/python3 deploy/compile_commands.py || exit 1
  if [ $# = 0 ]; then set -- $(git ls-files '*.cc'); fi
  for file in "$@"; do
    if clang-tidy-14 --quiet -p . "$file" 2>/dev/null; then
      passed=$((passed + 1))
    else
      echo "tidy: $file"
      failed=$((failed + 1))
    fi
  done
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
  exit
fi
for file in $(git ls-files '*.cc' '*.h' '*.c'); do
  if clang-format-14 --dry-run --Werror "$file" >/dev/null 2>&1; then
    passed=$((passed + 1))
  else
    echo "format: $file is not as clang-format-14 writes it"
    failed=$((failed + 1))
  fi
done
for file in $(git ls-files '*.sh' .ci/run); do
  if sh -n "$file"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
