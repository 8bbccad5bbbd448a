#!/bin/sh
# Opens pages of `cargo zero view` in a headless Chromium and uses them: pointer, keyboard, slider, dark, narrow, 64 ranks.
# Needs chromium, node and npm; says so and stops where one is missing. Screenshots lie in target/browser/ afterwards.
set -eu
cd "$(dirname "$0")/../.."
for program in node npm; do
  command -v "$program" >/dev/null || { echo "SKIPPED: no $program, so no page was opened"; exit 0; }
done
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  { echo "SKIPPED: no chromium (apt-get install chromium), so no page was opened"; exit 0; }
pages=$PWD/target/browser
mkdir -p "$pages"
ZERO_PAGES=$pages cargo test --workspace --bin cargo-zero pages_for_a_browser -- --ignored
[ -d "$pages/node_modules/playwright-core" ] || npm install --silent --no-save --prefix "$pages" playwright-core
cp tests/browser/check.mjs "$pages/check.mjs"
exec node "$pages/check.mjs" "$pages" "$chromium"
