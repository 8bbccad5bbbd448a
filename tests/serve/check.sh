#!/usr/bin/env bash
# Workers as OpenAI's client for Python sees them: one that follows a run, and one of a folder whose tokenizer has a chat template. Takes a
# Python that has the package `openai`.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1
made=$(mktemp -d)
started=()
trap 'kill "${started[@]}" 2>/dev/null || true; wait; rm -rf "$made"' EXIT

# Starts a program that says a line with a URL, and prints the URL.
start() {
  local out=$1 line=$2
  shift 2
  "$@" >"$out" 2>&1 &
  started+=($!)
  for _ in $(seq 300); do
    url=$(grep --max-count 1 "^$line" "$out" | grep --only-matching 'http://[0-9.:]*' | head -1 || true)
    [ -z "$url" ] || return 0
    kill -0 "${started[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  cat "$out" >&2
  return 1
}

sed "s/memory: MiB(256)/publish: (dtype: BF16)/" specs/zero3.ron >"$made/published.ron"
cp -r tests/golden/models/qwen3-tiny "$made/chats"
"$python" - "$made/chats" <<'MAKE'
import json, sys

# Each byte is a token, by the letters that byte-level vocabularies have for bytes.
printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
others = [byte for byte in range(256) if byte not in printed]
letters = {byte: chr(byte) for byte in printed} | {byte: chr(256 + at) for at, byte in enumerate(others)}
end = {"id": 256, "content": "<|endoftext|>", "special": True}
end |= dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
model = {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []}
tokenizer = {"version": "1.0", "added_tokens": [end], "pre_tokenizer": level, "decoder": level, "model": model}
template = """{% for message in messages %}{{ message['role'] }}: {{ message.content.strip() }}
{% endfor %}{% if add_generation_prompt %}a:{% endif %}"""
config = {"eos_token": "<|endoftext|>", "chat_template": template}
for name, document in [("tokenizer", tokenizer), ("tokenizer_config", config)]:
    with open(f"{sys.argv[1]}/{name}.json", "w") as file:
        json.dump(document, file)
MAKE
echo "a secret" >"$made/token"
# Builds both workers first, so that nothing waits for a compiler.
cargo zero serve "$made/published.ron" --prove
cargo zero serve specs/qwen3.ron --prove
learner=$(cargo zero build "$made/published.ron" | tail -1)

start "$made/learner" "publish: " "$learner" --steps 10000000 --publish 127.0.0.1:0 --publish-every 50
start "$made/follows" "serve: " cargo zero serve "$made/published.ron" --from "$url" --port 0 --token "$made/token"
"$python" tests/serve/openai_client.py "$url" --token "a secret"
start "$made/of_chats" "serve: " cargo zero serve specs/qwen3.ron --init "$made/chats" --port 0
"$python" tests/serve/openai_client.py "$url" --chat
