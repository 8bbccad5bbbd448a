#!/usr/bin/env bash
# Packs the crates that are published, and then uses nothing but these packs, in a new folder, as a person without a clone does:
# installs the command, makes a crate by it, builds, trains and tests that crate. As no registry has the crates, a folder of packs and
# of the crates that they depend on takes the place of crates.io. Fails if anything reaches back to this clone.
set -euo pipefail
cd "$(dirname "$0")/.."
clone=$(pwd -P)
made=$(mktemp --directory)
trap 'rm -rf "$made"' EXIT
say() { printf -- '-- %s s: %s\n' "$SECONDS" "$*"; }

say "packs what is published"
mapfile -t names < <(cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
print(*(it["name"] for it in json.load(sys.stdin)["packages"] if it["publish"] is None), sep="\n")')
[ ${#names[@]} -gt 10 ]
cargo package --quiet --no-verify --allow-dirty --target-dir "$made/packed" "${names[@]/#/--package=}"
cargo vendor --quiet --locked --versioned-dirs "$made/crates" >/dev/null
for pack in "$made"/packed/package/*.crate; do
  tar --extract --file "$pack" --directory "$made/crates"
  sum=$(sha256sum "$pack" | cut --delimiter ' ' --fields 1)
  echo "{\"files\":{},\"package\":\"$sum\"}" >"$made/crates/$(basename "$pack" .crate)/.cargo-checksum.json"
done

# From here on neither the clone nor a registry.
export CARGO_HOME=$made/home CARGO_TARGET_DIR=$made/target CARGO_NET_OFFLINE=true PATH=$made/installed/bin:$PATH
# Nothing here is about speed, and optimising would take half the time.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
unset ZERO_SPEC ZERO_TEXT ZERO_SIZE ZERO_PARTS
mkdir "$CARGO_HOME" "$made/empty"
cat >"$CARGO_HOME/config.toml" <<END
[source.crates-io]
replace-with = "packs"
[source.packs]
directory = "$made/crates"
END
cd "$made/empty"

say "installs the command"
cargo install --quiet --locked zero-command --root "$made/installed"
zero explain zero.prefetch >/dev/null

say "makes a crate, builds it and trains"
zero init mine
cd mine
grep '^zero-runtime = { version = "[0-9.]*"' Cargo.toml
cargo zero simulate spec.ron --on a100-80 --network ndr-8x400 >/dev/null
cargo zero run spec.ron -- --steps 2 --held-out 0 --sample 0

say "tests it"
cargo fmt --check
cat >>src/main.rs <<'END'

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_is_that_of_the_spec() {
        assert_eq!(<Model as zero_runtime::prelude::Model>::PLAN.config.stage, 3);
    }
}
END
cargo test --quiet

say "builds it for GPUs, and the program that measures these"
sed 's/^    model:/    device: Cuda,\n&/' spec.ron >gpu.ron
cargo zero build gpu.ron
# Fails without a GPU, but not before the program is built.
cargo zero measure gpu.ron --out "$made/gpu.ron" || [ -x "$CARGO_TARGET_DIR/release/zero-gpus" ]

say "looks for what reaches back to $clone"
for name in "${names[@]}"; do
  compgen -G "$CARGO_TARGET_DIR/release/.fingerprint/$name-*" >/dev/null || { echo "$name was not compiled" >&2; exit 1; }
done
cargo metadata --format-version 1 >"$made/metadata.json"
if grep --recursive --files-with-matches --fixed-strings --include '*.d' "$clone/" "$CARGO_TARGET_DIR" ||
  grep --recursive --files-with-matches --fixed-strings "$clone" "$made"/{crates/zero-*,empty,installed,metadata.json}; then
  echo "these name the clone" >&2
  exit 1
fi
say "done"
