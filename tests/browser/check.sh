#!/bin/sh
# check.sh [PAGE.html...]: opens pages of `cargo zero view` in a headless Chromium and uses them: pointer, keyboard, slider, dark,
# narrow, 64 ranks. If pages are given, by absolute paths, it compares their figures with the data that they are drawn from. Needs
# chromium, node and npm; says so and stops where one is missing, and fails then with CI=true. Look at the screenshots
# in target/browser/ afterwards.
set -eu
cd "$(dirname "$0")/../.."
skipped() {
  echo "SKIPPED: no $1, so no page was opened" >&2
  [ "${CI:-}" != true ] || exit 1
  exit 0
}
for program in node npm; do
  command -v "$program" >/dev/null || skipped "$program"
done
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  skipped "chromium (apt-get install chromium)"
pages=$PWD/target/browser
mkdir -p "$pages"
ZERO_PAGES=$pages cargo test --workspace --bin zero pages_for_a_browser -- --ignored
[ -d "$pages/node_modules/playwright-core" ] || npm install --silent --no-save --prefix "$pages" playwright-core
cp tests/browser/check.mjs "$pages/check.mjs"
exec node "$pages/check.mjs" "$pages" "$chromium" "$@"
