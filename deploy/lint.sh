#!/bin/sh
# Formatter and shell checks over the tracked files. Ends with `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0
failed=0
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
