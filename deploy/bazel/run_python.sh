#!/bin/sh
# Bazel 4.2's py_test starts with '#!/usr/bin/env python', which Debian lacks.
exec /usr/bin/python3 -B "$@"
