#!/bin/sh
# A program with CUDA in it starts where there is none: it needs no shared library of CUDA or NCCL.
set -u
program=$1
foreign='^[[:space:]]*lib(cuda|cudart|nccl|nv[A-Za-z-]*)\.so'
for name in libcuda.so.1 libcudart.so.13 libnccl.so.2 libnvidia-ml.so.1; do
  if ! echo "	$name => /usr/lib/$name" | grep -q -E "$foreign"; then
    echo "this test would not notice $name"
    exit 1
  fi
done
libraries=$(ldd "$program") || exit 1
if ! echo "$libraries" | grep -q 'libc\.so'; then
  echo "ldd $program does not look right:"
  echo "$libraries"
  exit 1
fi
if echo "$libraries" | grep -E "$foreign"; then
  echo "$program needs the libraries above"
  exit 1
fi
