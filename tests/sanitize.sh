#!/usr/bin/env bash
# Looks for faults that no ordinary test can see: accesses of CUDA kernels out of bounds, with AddressSanitizer and
# UndefinedBehaviorSanitizer of the system's C++ compiler; undefined behaviour of the collectives, with Miri; and data
# races between ranks and between the threads of a rank, with ThreadSanitizer. The last two need a nightly toolchain and
# its sources:
#
#     rustup toolchain install nightly --component miri,rust-src
#
# Runs the parts that are named (`kernels`, `miri`, `threads`), or all. Says which part it could not run, and why, and fails if
# something was found or nothing could be run. The last two build in target/sanitize. Takes some minutes. NIGHTLY names a
# toolchain other than `nightly`.
set -uo pipefail
cd "$(dirname "$0")/.."

nightly=${NIGHTLY:-nightly}
host=$(rustc -vV | sed -n 's/^host: //p')
ran=0 found=0
skipped=()
[ $# -gt 0 ] || set -- kernels miri threads

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

# The pretend libraries compile kernels for the host. Their sanitizer must be loaded before the test program. It does not
# handle SIGSEGV, as a test relies on one.
kernels() {
  local library runner
  library=$(g++ -print-file-name=libasan.so 2>/dev/null || true)
  if [ ! -e "$library" ]; then
    skipped+=("AddressSanitizer: g++ with libasan")
    return
  fi
  runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$host")_RUNNER
  part "AddressSanitizer: kernels" env "$runner=env LD_PRELOAD=$library PRETEND_SANITIZE=1 ASAN_OPTIONS=detect_leaks=0:handle_segv=0" \
    cargo test --workspace --test cuda -- kernels:: spine:: pretend::failures
}

# Whether the nightly toolchain has the sources of the standard library.
sources() {
  local sources
  sources=$(rustc "+$nightly" --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library/Cargo.lock
  [ -e "$sources" ]
}

# Miri interprets gathers, sums and exchanges among ranks that are threads, over a mapping. It supports neither hints
# about pages nor the futex call as rustix makes it, so under Miri there are no hints, and a rank that waits yields
# instead. The size of the host's memory is read from /proc, so isolation is off; warnings about /proc mean nothing here.
miri() {
  if ! sources || ! cargo "+$nightly" miri --version >/dev/null 2>&1; then
    skipped+=("Miri: rustup toolchain install $nightly --component miri,rust-src")
    return
  fi
  MIRIFLAGS="-Zmiri-disable-isolation" CARGO_TARGET_DIR=$PWD/target/sanitize part "Miri: collectives, views and columns" \
    cargo "+$nightly" miri test --package zero-engine --package zero-cpu --package zero-core --lib -- collectives::tests columns:: view::
}

# ThreadSanitizer must see the standard library too, otherwise it takes its locks and channels for races. The queues of
# rayon's threads read a slot that may be overwritten meanwhile, and discard the value: crossbeam's authors know.
threads() {
  local suppressions
  if ! sources; then
    skipped+=("ThreadSanitizer: rustup toolchain install $nightly --component rust-src")
    return
  fi
  suppressions=$(mktemp)
  echo 'race:crossbeam_deque::deque' >"$suppressions"
  for tests in skew threads turns; do
    RUSTFLAGS="-Zsanitizer=thread" TSAN_OPTIONS="halt_on_error=1 suppressions=$suppressions" \
      CARGO_TARGET_DIR=$PWD/target/sanitize part "ThreadSanitizer: $tests" \
      cargo "+$nightly" test -Zbuild-std --target "$host" --package zero-tests --test training -- "parity::$tests::"
  done
  rm -f "$suppressions"
}

for name in "$@"; do
  case $name in
    kernels | miri | threads) "$name" ;;
    *) echo "no part \`$name\`: kernels, miri, threads" && exit 2 ;;
  esac
done

printf '\n'
for reason in "${skipped[@]}"; do echo "not run: $reason"; done
echo "$ran parts ran, $found found something, ${#skipped[@]} could not run"
[ "$found" -eq 0 ] && [ "$ran" -gt 0 ]
