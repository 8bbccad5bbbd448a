#!/usr/bin/env bash
# Looks for what no ordinary test can see: what a kernel of a CUDA device does out of bounds, with AddressSanitizer and
# UndefinedBehaviorSanitizer of the system's C++ compiler; undefined behaviour of the collectives with Miri, and data races
# between ranks and between the threads of a rank with ThreadSanitizer. These two need a nightly toolchain and its sources:
#
#     rustup toolchain install nightly --component miri,rust-src
#
# Runs what can be run, says of the rest why not, and fails if something was found or nothing could be run. What it builds
# lies in target/sanitize. Takes some minutes. NIGHTLY names another toolchain than `nightly`.
set -uo pipefail
cd "$(dirname "$0")/.."

nightly=${NIGHTLY:-nightly}
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/target/sanitize
ran=0 found=0
skipped=()

# part NAME COMMAND...: runs a part, and notes how it ended.
part() {
  local name=$1
  shift
  printf '\n== %s\n' "$name"
  ran=$((ran + 1))
  if ! "$@"; then
    found=$((found + 1))
    printf '== %s: FOUND SOMETHING\n' "$name"
  fi
}

# Kernels are compiled for the host by the pretend libraries. Their sanitizer must be loaded before the tests' program; it
# leaves faults to the system, as a test counts on one.
library=$(g++ -print-file-name=libasan.so 2>/dev/null || true)
if [ ! -e "$library" ]; then
  skipped+=("AddressSanitizer: g++ with libasan")
else
  runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$host")_RUNNER
  part "AddressSanitizer: kernels" env "$runner=env LD_PRELOAD=$library PRETEND_SANITIZE=1 ASAN_OPTIONS=detect_leaks=0:handle_segv=0" \
    cargo test --package zero-tests --test cuda
fi

if ! rustc "+$nightly" --version >/dev/null 2>&1; then
  echo "no toolchain \`$nightly\`: rustup toolchain install nightly --component miri,rust-src"
  exit 2
fi
sources=$(rustc "+$nightly" --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock

# Miri interprets: gathers, sums and exchanges among ranks that are threads, over a mapping. It knows neither hints about
# pages nor the futex call as rustix makes it, so that there nothing is hinted and a rank that waits yields instead. The
# host's memory is read from /proc, so it may not be isolated. Its warnings about /proc mean nothing here.
if ! cargo "+$nightly" miri --version >/dev/null 2>&1; then
  skipped+=("Miri: rustup component add miri --toolchain $nightly")
elif [ ! -e "$sources" ]; then
  skipped+=("Miri: rustup component add rust-src --toolchain $nightly")
else
  MIRIFLAGS="-Zmiri-disable-isolation" part "Miri: collectives, views and columns" \
    cargo "+$nightly" miri test --package zero-runtime --lib -- engine::collectives::tests device::cpu::columns view::
fi

# ThreadSanitizer must see the standard library too, or it takes its locks and channels for races. The queues of rayon's
# threads read a slot that may be overwritten meanwhile, and throw away what they read: crossbeam's authors know of it.
suppressions=$(mktemp)
trap 'rm -f "$suppressions"' EXIT
echo 'race:crossbeam_deque::deque' >"$suppressions"
if [ ! -e "$sources" ]; then
  skipped+=("ThreadSanitizer: rustup component add rust-src --toolchain $nightly")
else
  for tests in skew threads turns; do
    RUSTFLAGS="-Zsanitizer=thread" TSAN_OPTIONS="halt_on_error=1 suppressions=$suppressions" part "ThreadSanitizer: $tests" \
      cargo "+$nightly" test -Zbuild-std --target "$host" --package zero-tests --test parity -- "$tests::"
  done
fi

printf '\n'
for reason in "${skipped[@]}"; do echo "not run: $reason"; done
echo "$ran parts ran, $found found something, ${#skipped[@]} could not run"
[ "$found" -eq 0 ] && [ "$ran" -gt 0 ]
