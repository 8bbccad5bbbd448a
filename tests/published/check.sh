#!/usr/bin/env bash
# Runs that publish, and their readers: `cargo zero follow`, and the Python package. Readers of every spec have what is exported, byte for
# byte; readers and ranks are killed and stopped; and servers get requests of all kinds. Takes a Python that has the wheel `blake3`.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH=zero-runtime/publish/python
python=$1
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

build() {
  sed "s/memory: MiB(256)/publish: (dtype: BF16, copies: $1)/" specs/zero3.ron >"$made/copies$1.ron"
  cargo zero build "$made/copies$1.ron" | tail -1
}
one=$(build 1)
two=$(build 2)
cargo build --quiet --release --package zero-command --bin zero --no-default-features --features follow

"$python" tests/published/fuzz.py "$two" --seconds 30
"$python" tests/published/faults.py "$one" "$two" target/release/zero --seconds 30
"$python" tests/published/specs.py target/release/zero
