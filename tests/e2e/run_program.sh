#!/bin/sh
# Runs a program of the build as a test.
exec "$@"
