#!/usr/bin/env python3
"""figures.py FIGURE.svg...: converts figures with rsvg-convert, which knows no variables of style sheets, and looks at the
pixels: a white ground, dark text and the colours of ops. Says so and stops where rsvg-convert is missing, and fails then
with CI=true."""
import os
import shutil
import struct
import subprocess
import sys
import zlib

WHITE, INK, FORWARD, BACKWARD = (255, 255, 255), (22, 24, 29), (0, 114, 178), (213, 94, 0)


def pixels(figure):
    """How often each colour (red, green, blue) is in a figure, and the colour of its first pixel."""
    png = subprocess.run(["rsvg-convert", figure], check=True, capture_output=True).stdout
    at, data, width, channels = 8, b"", 0, 0
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, _, depth, colour = struct.unpack(">IIBB", body[:10])
            channels = {2: 3, 6: 4}[colour]
            assert depth == 8, f"{figure}: {depth} bits a channel"
        data += body if kind == b"IDAT" else b""
        at += length + 12
    lines, row, found = zlib.decompress(data), bytearray(width * channels), {}
    step = 1 + len(row)
    for start in range(0, len(lines), step):
        how, above, row = lines[start], row, bytearray(lines[start + 1 : start + step])
        for i in range(len(row) if how else 0):
            left = row[i - channels] if i >= channels else 0
            corner = above[i - channels] if i >= channels else 0
            paeth = min((left, above[i], corner), key=lambda one: abs(left + above[i] - corner - one))
            row[i] = (row[i] + [0, left, above[i], (left + above[i]) // 2, paeth][how]) % 256
        for i in range(0, len(row), channels):
            colour = tuple(row[i : i + 3])
            found[colour] = found.get(colour, 0) + 1
    return found, next(iter(found))


def main():
    if not shutil.which("rsvg-convert"):
        print("SKIPPED: no rsvg-convert (apt-get install librsvg2-bin), so no figure was converted", file=sys.stderr)
        sys.exit(1 if os.environ.get("CI") == "true" else 0)
    for figure in sys.argv[1:]:
        found, first = pixels(figure)
        all_pixels = sum(found.values())
        assert first == WHITE and found[WHITE] > all_pixels / 4, f"{figure}: its ground is not white, but {first}"
        for name, colour in [("text", INK), ("forward", FORWARD), ("backward", BACKWARD)]:
            assert found.get(colour, 0) > 20, f"{figure}: nothing has the colour of {name}, {colour}"
        print(f"{figure}: {len(found)} colours, {found[WHITE] * 100 // all_pixels} % white")


main()
