#!/bin/sh
# Draws each spec of specs/ as docs/pictures/NAME.svg: on 8 x A100 a node, and 8 links of 200 Gb/s between nodes.
set -eu
cd "$(dirname "$0")/.."
mkdir -p docs/pictures
for spec in specs/*.ron; do
  cargo zero view "$spec" --svg --on a100-80 --network hdr-8x200 --out "docs/pictures/$(basename "$spec" .ron).svg"
done
