#!/usr/bin/env bash
# A run publishes; `cargo zero follow` and the Python package read it. Both have the tensors that the run exports, byte for byte. Takes
# a Python that has the wheel `blake3`.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
made=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$made"' EXIT

sed 's/memory: MiB(256)/publish: (dtype: BF16, copies: 1)/' specs/zero3.ron >"$made/publish.ron"
binary=$(cargo zero build "$made/publish.ron" | tail -1)
# Before the run begins, because the run does not wait for readers that have not joined.
cargo build --quiet --release --package zero-command --bin zero --no-default-features --features follow
"$binary" --steps 120 --publish 127.0.0.1:0 --publish-every 20 --held-out 0 --sample 0 \
  --export "$made/exported" --export-dtype bf16 >"$made/log" 2>&1 &
for _ in $(seq 600); do
  url=$(sed -n 's/^publish: .* at \(http[^,]*\),.*/\1/p' "$made/log")
  [ -n "$url" ] && break
  sleep 0.1
done
target/release/zero follow "$url" --out "$made/followed" --patience 2 &
PYTHONPATH=zero-runtime/publish/python "$python" - "$url" "$made/exported/model.safetensors" <<'END'
import json, sys, time
from zero_weights import Subscriber, WeightsError

url, path = sys.argv[1:]
last = {}
with Subscriber(url, name="python", timeout=10) as run:
    try:
        for version in run.versions(stop_after=2):
            fetched = run.fetch(version)
            last = {tensor.name: bytes(tensor.data) for tensor in fetched}
            run.acknowledge(version)
            print("python:", version, len(last), "tensors")
    except WeightsError as error:
        print("python:", error)
for _ in range(100):
    try:
        exported = open(path, "rb").read()
        break
    except FileNotFoundError:
        time.sleep(0.1)
length = int.from_bytes(exported[:8], "little")
header = json.loads(exported[8 : 8 + length])
header.pop("__metadata__", None)
of = {name: exported[8 + length + it["data_offsets"][0] : 8 + length + it["data_offsets"][1]] for name, it in header.items()}
assert of == last, "other tensors than those that were exported"
print("python: equal to what was exported")
END
wait
cmp "$made/followed/model.safetensors" "$made/exported/model.safetensors"
cat "$made/followed/published.json"
