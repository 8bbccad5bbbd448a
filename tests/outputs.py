#!/usr/bin/env python3
r"""Makes the outputs that README.md and docs/*.md show, or checks them.

    tests/outputs.py            runs the commands, and writes anew each block that does not agree with what they print; empty a
                                block to have its times anew as well
    tests/outputs.py --check    prints the differences, and fails if there are any

Needs Rust, as the commands do, and builds what they need. A comment on the lines directly above a block says what it shows:

    <!-- output: cargo zero plan specs/hybrid.ron | 1-12, /^held or sent/-$ -->

    <!-- output:
    sed 's/MiB(256)/MiB(96)/' specs/ddp.ron >$made/specs/ddp.ron
    $ cargo zero run $made/specs/ddp.ron
      | kill 1 after /^step +40/ | ..., /^step +40/, /^error/+1
    -->

Each line is a command of a shell at the root of the repository; an indented line continues the one before it. After a command come the
lines that are kept, from top to bottom: a line by its number or by `/REGEX/`, which is the first match from there on, or `$`, the last
line; `FIRST-LAST`; `LINE+N`, with N more lines. No REGEX has a comma and a space. Lines that are left out between them show as `...`; at
an end, `...` is a part of the list. A command without a list is a preparation, which must succeed. `$ ` in front of a command shows it
too. `kill RANK after /REGEX/` kills a rank once such a line is printed. $made is an empty folder with another one in it, `specs`; blocks
do not show where it is. Equal commands run once, whichever blocks they are for.

An output that cannot be made here has the comment `<!-- not run: WHY -->`. A block of `text` needs one of these comments, except where
each of its lines is a command; so does Rust that begins indented, because it is a part of something longer.

Times, rates, process ids and measured resident memory are not compared. Losses and norms are compared to a tolerance, because another
kind of processor rounds in another way; but not those of a run without `--data`, which trains on the sources, as each commit changes them.
"""

import difflib
import functools
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# Tests in Rust write and compare these.
ELSEWHERE = {"memo-13b.md", "predictions.md", "published.md", "transfers.md"}
# What differs from machine to machine, or from run to run. The bound of resident memory grows with threads, so with the host's cores.
VARIES = [
    (r"\(pid \d+\)", "(pid _)"),
    (r" *\b[\d.]+ (?:tokens|[KMGT]i?B|[GT]FLOP)/s", " _/s"),
    (r" *\b[\d.]+ (?:s|ms|us|minutes)\b", " _ s"),
    (r"(^step .* _/s) +[\d.]+ MiB$", r"\1  _ MiB"),
    (r"^(peak resident of a rank +<=) +[\d.]+ MiB +[\d.]+ MiB$", r"\1 _ MiB _ MiB"),
]
NUMBER = re.compile(r"((?:loss|norm) +)([\d.]+)")
TOLERANCE = 1e-3
POINT = r"(?:\d+|\$|/(?:\\.|[^/\\])+/)"
KEPT = re.compile(rf"(?P<first>{POINT})(?:\+(?P<more>\d+)|-(?P<last>{POINT}))?|(?P<dots>\.\.\.)")


class Block(NamedTuple):
    """A fenced block: its lines are `page[begin:end]`, and the comment above it is without `<!--` and `-->`."""

    begin: int
    end: int
    language: str
    comment: str


class Command(NamedTuple):
    text: str
    is_shown: bool
    # A rank, and what is printed when it is killed.
    kill: tuple
    kept: str


def blocks(page):
    fences = [i for i, line in enumerate(page) if line.startswith("```")]
    for begin, end in zip(fences[::2], fences[1::2], strict=True):
        above, comment = begin, ""
        if begin > 0 and page[begin - 1].endswith("-->"):
            above = max(i for i in range(begin) if page[i].startswith("<!--"))
            comment = "\n".join(page[above:begin]).removeprefix("<!--").removesuffix("-->").strip()
        yield Block(begin + 1, end, page[begin].removeprefix("```"), comment)


def looks_like_output(block, lines):
    if block.language == "text":
        return not all(re.match(r"(cargo|zero|cd|sbatch|ZERO_\w+=\S+) ", line) for line in lines)
    return block.language.startswith("rust") and "".join(lines).startswith(" ")


def commands(comment):
    """What a comment says, after `output:`."""
    for line in re.sub(r"\n +", " ", comment).strip().splitlines():
        text, *parts = line.strip().split(" | ")
        kill = ()
        if parts and parts[0].startswith("kill "):
            rank, regex = re.fullmatch(r"kill (\d+) after /(.*)/", parts.pop(0)).groups()
            kill = (rank, regex)
        if len(parts) > 1:
            sys.exit(f"more than a list of lines: {line}")
        yield Command(text.removeprefix("$ "), text.startswith("$ "), kill, parts[0] if parts else "")


def kill_rank(rank, made):
    """Only a process that has this script's own folder in its environment."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"made={made}".encode() in variables and f"RANK={rank}".encode() in variables:
            os.kill(int(process.name), signal.SIGKILL)


@functools.cache
def run(text, kill, made):
    """The exit status of a command and the lines that it prints, without those of cargo about a build."""
    print(text, file=sys.stderr, flush=True)
    environment = os.environ | {"made": made, "CARGO_TERM_QUIET": "true", "CARGO_TERM_COLOR": "never"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(text, shell=True, cwd=ROOT, env=environment, encoding="utf-8", errors="replace", **pipes)
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip().replace(f"{made}/", ""))
        if kill and re.search(kill[1], line):
            kill_rank(kill[0], made)
    return process.wait(), lines


def place(point, lines, after):
    """The index of the line that a point of a list means, or none."""
    if point.startswith("/"):
        return next((i for i in range(after, len(lines)) if re.search(point[1:-1], lines[i])), None)
    index = len(lines) - 1 if point == "$" else int(point) - 1
    return index if after <= index < len(lines) else None


def kept(command, lines):
    """The lines of an output that a command's list keeps, with `...` for others."""
    shown, after = [], 0
    for item in command.kept.split(", "):
        match = KEPT.fullmatch(item)
        if not match:
            sys.exit(f"not a list of lines: {command.kept}")
        if match["dots"]:
            shown.append("...")
            continue
        first = place(match["first"], lines, after)
        last = first if first is None or not match["last"] else place(match["last"], lines, first)
        if last is None:
            sys.exit("\n".join([f"no line `{item}` in what `{command.text}` prints:", *lines]))
        if shown and first > after and shown[-1] != "...":
            shown.append("...")
        after = last + 1 + int(match["more"] or 0)
        shown += lines[first:after]
    return shown


def output(block, made):
    """The lines that a block should have."""
    lines = []
    for command in commands(block.comment.removeprefix("output:")):
        status, printed = run(command.text, command.kill, made)
        if not command.kept and status != 0:
            sys.exit("\n".join([f"a preparation has failed: {command.text}", *printed]))
        lines += [f"$ {command.text}".replace("$made/", "")] * command.is_shown
        lines += kept(command, printed) if command.kept else []
    return lines


def agree(shown, found, compares_losses):
    """Whether a line is as the page shows it, except for what may differ."""
    for regex, instead in VARIES:
        shown, found = (re.sub(regex, instead, line) for line in (shown, found))
    if NUMBER.sub(r"\1_", shown) != NUMBER.sub(r"\1_", found):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(found))
    return not compares_losses or all(abs(float(a) - float(b)) <= TOLERANCE * abs(float(a)) for (_, a), (_, b) in pairs)


def merged(shown, found, compares_losses):
    """What was found, but with each line that agrees as it is shown, so that only true differences remain."""
    pairs = itertools.zip_longest(shown, found)
    return [a if a is not None and agree(a, b, compares_losses) else b for a, b in pairs if b is not None]


def without_comment(name, page):
    """The outputs of a page that nobody says how to make."""
    for block in blocks(page):
        if looks_like_output(block, page[block.begin : block.end]) and not re.match(r"(output|not run):\s*\S", block.comment):
            yield f"{name}:{block.begin + 1}: this output has no comment that says how it is made: see tests/outputs.py"


def renewed(name, page, made):
    """The page with the outputs of its commands, and the differences."""
    new, differences = list(page), []
    # From the bottom, so that the places of blocks above stay what they are.
    for block in reversed(list(blocks(page))):
        if block.comment.startswith("output:"):
            shown = page[block.begin : block.end]
            lines = merged(shown, output(block, made), "--data " in block.comment)
            if lines != shown:
                new[block.begin : block.end] = lines
                differences += difflib.unified_diff(shown, lines, f"{name}:{block.begin + 1}", "found", lineterm="", n=1)
    return new, differences


def main(is_check):
    paths = [path for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))) if path.name not in ELSEWHERE]
    pages = {path: path.read_text().split("\n") for path in paths}
    if missing := [line for path in paths for line in without_comment(path.relative_to(ROOT), pages[path])]:
        sys.exit("\n".join(missing))
    differs = False
    with tempfile.TemporaryDirectory(prefix="outputs-") as made:
        Path(made, "specs").mkdir()
        for path, page in pages.items():
            new, differences = renewed(path.relative_to(ROOT), page, made)
            if differences:
                differs = True
                print(*differences, sep="\n", flush=True)
                if not is_check:
                    path.write_text("\n".join(new))
    sys.exit(is_check and differs)


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    main(sys.argv[1:] == ["--check"])
