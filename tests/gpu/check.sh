#!/usr/bin/env bash
# Runs the tests of CUDA with NVIDIA's own libraries on a GPU; then, where it is installed, under compute-sanitizer.
#
#     tests/gpu/check.sh               builds, and checks on this machine
#     tests/gpu/check.sh pack FOLDER   builds, and puts what another machine needs into a new folder: neither Rust nor network
#     FOLDER/check.sh                  checks there
#
# The folder has `bench` too, with `peer.py` beside it: `FOLDER/bench --device cuda --python PYTHON`. Ranks share the first
# device, unless ZERO_CUDA_DEVICES names others. Further arguments are filters of tests. Needs driver 580 or newer, and
# NVRTC and cublasLt of CUDA 13, for which PyTorch's will do: those of the python3 on the PATH, or in the folders that
# ZERO_CUDA_LIBRARIES names.
#
# Sets ZERO_TEST_GPU=1, with which tests of the pretend libraries, of orders and of failures do nothing, and say so. NCCL
# connects ranks that share a GPU only if NCCL_MULTI_RANK_GPU_ENABLE is 1, which NCCL 2.30 and later read.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
from=$PWD

# build: prints the paths of the test program and of the programs that it starts, one a line.
build() {
  cargo test --locked --release --workspace --test cuda --no-run --message-format json |
    sed -n 's/.*"kind":\["\(test\|bin\)"\].*"name":"\(cuda\|spec\|figures\|gpus\)".*"executable":"\([^"]*\)".*/\3/p' | sort -u
}

if [ -x "$here/cuda" ]; then
  program=$here/cuda
else
  cd "$here/../.."
  programs=$(build)
  program=$(grep '/cuda-[^/]*$' <<<"$programs")
fi

if [ "${1:-}" = pack ]; then
  folder=$(cd "$from" && realpath --canonicalize-missing "${2:?pack: which folder?}")
  mkdir "$folder"
  cargo build --locked --release --package bench --features cuda
  strip -o "$folder/cuda" "$program"
  for other in $(grep -v '/cuda-[^/]*$' <<<"$programs") "${CARGO_TARGET_DIR:-target}/release/bench"; do
    strip -o "$folder/$(basename "$other")" "$other"
  done
  # A text to train on, which tests look for beside their program.
  cp "$here/check.sh" tests/Cargo.toml tests/bench/peer.py "$folder"
  du -sh "$folder"
  exit
fi

export ZERO_TEST_GPU=1 ZERO_TEST_FULL=1
export ZERO_CUDA_DEVICES=${ZERO_CUDA_DEVICES:-0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
printf '\n== tests on the device\n'
"$program" --test-threads=1 "$@"

# Only single ops of a device: under these tools, training would take hours.
[ $# -gt 0 ] || set -- kernels:: spine::
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck synccheck; do
    printf '\n== compute-sanitizer: %s\n' "$tool"
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$program" --test-threads=1 "$@"
  done
else
  echo "not run: compute-sanitizer is not installed"
fi
