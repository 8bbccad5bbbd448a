#!/usr/bin/env bash
# Compiles every kernel that the tests use by NVIDIA's own compiler, without a GPU, for all supported architectures, and
# fails where one does not compile, or where a thread needs more registers than it has. The compiler comes from the Python
# package index; it is installed in target/nvrtc, where the kernels of the tests lie too. Needs python3 with venv and a C++
# compiler. An argument is a folder in which a run of the tests with PRETEND_KEEP has kept its kernels; without one, the
# tests run here. `--in-turn` after it compiles each kernel for one of the architectures, in a third of the time.
set -euo pipefail
cd "$(dirname "$0")/../.."

below=${CARGO_TARGET_DIR:-target}/nvrtc
if [ ! -x "$below/python/bin/python" ]; then
  python3 -m venv "$below/python"
  "$below/python/bin/pip" install --quiet 'nvidia-cuda-nvrtc==13.0.*'
fi
kept=${1:-}
if [ -z "$kept" ]; then
  kept=$(cd "$below" && pwd)/kept
  rm -rf "$kept"
  PRETEND_KEEP=$kept cargo test --locked --workspace --test cuda -- kernels:: spine::
fi
"$below/python/bin/python" tests/nvrtc/check.py "$kept" "${@:2}"
