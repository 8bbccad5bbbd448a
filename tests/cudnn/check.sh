#!/usr/bin/env bash
# Has cuDNN itself plan the attention that `attention: Cudnn` asks of it, for devices that are only described, and fails where
# it refuses one, or needs more room than a plan has for it. No GPU is needed, as nothing is executed: its driver only accepts
# what is loaded. The library comes from the Python package index, 2 GB with its dependencies, and lies in target/cudnn. Needs
# python3 with venv and a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/../.."

mkdir -p "${CARGO_TARGET_DIR:-target}/cudnn"
below=$(cd "${CARGO_TARGET_DIR:-target}/cudnn" && pwd)
if [ ! -x "$below/python/bin/python" ]; then
  python3 -m venv "$below/python"
  "$below/python/bin/pip" install --quiet 'nvidia-cudnn-cu13>=9.28' 'nvidia-cuda-nvrtc==13.*'
fi
"${CXX:-c++}" -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$below/libcuda.so.1" tests/cudnn/driver.cpp
found=("$below"/python/lib/python3*/site-packages/nvidia)
cargo test --locked -p zero-runtime --features cuda --lib --no-run
LD_LIBRARY_PATH=$below:${found[0]}/cu13/lib:${found[0]}/cudnn/lib \
  cargo test --locked -p zero-runtime --features cuda --lib -- --ignored cudnn_plans
