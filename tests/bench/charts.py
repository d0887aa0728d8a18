#!/usr/bin/env python3
"""Draws docs/performance.svg of the tables in docs/performance-tables.md. run.sh calls it after each benchmark that writes there.

A bar is the time until every byte was read; behind it stands that time divided by the time of tensorcast's first row.
"""
import re
import sys
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PANELS = {"measured": ["whole checkpoint, cold", "whole checkpoint, hot", "four ranks, cold", "four ranks, hot", "small tensors, hot"],
          "measured stores": ["nginx plain", "gs (fake-gcs-server), four ranks", "s3 (SeaweedFS), four ranks"]}
CEILINGS = ("fio", "2-thread memcpy", "plain libcurl", "bare sockets")
WIDTH, BAR, TEXT_WIDTH, BAR_WIDTH = 940, 16, 195, 150
STYLE = """<style>
  text { font: 12px sans-serif; fill: #222 } .title { font-weight: bold } .note { font-size: 10px; fill: #555 }
  .back { fill: #fff } .own { fill: #1a6fb5 } .peer { fill: #b9c4cc } .ceiling { fill: none; stroke: #888; stroke-dasharray: 3 }
  @media (prefers-color-scheme: dark) { text { fill: #ddd } .note { fill: #aaa } .back { fill: #111 } .own { fill: #4ea1e6 } .peer { fill: #4a545c } }
</style>"""


def tables(text, section):
    """The measured conditions of a section, and {title: (title with size, [(name, seconds)])}."""
    body = text.split(f"<!-- {section}: begin -->")[1].split(f"<!-- {section}: end -->")[0]
    found = {}
    for title, size, table in re.findall(r"^### (.*?): ([\d.]+ GB)\n\n((?:\|.*\n)+)", body, re.M):
        head, _, *rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()]
        column = next(k for k, cell in enumerate(head) if cell.startswith("touched s"))
        found[title] = (f"{title}, {size}", sorted(((row[0], float(row[column].split()[0])) for row in rows), key=lambda row: row[1]))
    return re.search(r"^Measured on .*", body, re.M)[0], found


def panel(title, rows, x, y):
    longest = max(seconds for _, seconds in rows)
    own = next(seconds for name, seconds in rows if name.startswith("tensorcast"))
    lines = [f'<text class="title" x="{x}" y="{y}">{escape(title)}</text>']
    for k, (name, seconds) in enumerate(rows):
        top = y + 10 + k * (BAR + 4)
        kind = "own" if name.startswith("tensorcast") else "ceiling" if name.startswith(CEILINGS) else "peer"
        width = max(1, seconds / longest * BAR_WIDTH)
        lines += [f'<text x="{x}" y="{top + 12}">{escape(name)}</text>',
                  f'<rect class="{kind}" x="{x + TEXT_WIDTH}" y="{top}" width="{width:.1f}" height="{BAR}"/>',
                  f'<text x="{x + TEXT_WIDTH + width + 4:.1f}" y="{top + 12}">{seconds:.2f} s, {seconds / own:.2f}x</text>']
    return lines, 40 + len(rows) * (BAR + 4)


def note(words, y):
    """Conditions as lines of text below their charts."""
    lines = re.findall(r".{1,150}(?:\s|$)", words.replace("`", ""))
    return [f'<text class="note" x="20" y="{y + k * 13}">{escape(line.strip())}</text>' for k, line in enumerate(lines)], len(lines) * 13 + 30


def draw(text):
    y, lines = 30, []
    for section, titles in PANELS.items():
        conditions, found = tables(text, section)
        chosen = [found[title] for title in titles if title in found]
        for pair in (chosen[k:k + 2] for k in range(0, len(chosen), 2)):
            drawn = [panel(*table, 20 + k * WIDTH // 2, y) for k, table in enumerate(pair)]
            lines += [line for part, _ in drawn for line in part]
            y += max(height for _, height in drawn)
        part, height = note(conditions, y)
        lines, y = lines + part, y + height
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}">', STYLE, f'<rect class="back" width="{WIDTH}" height="{y}"/>']
    return "\n".join([*head, *lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "performance-tables.md"
    (source.parent / "performance.svg").write_text(draw(source.read_text()))
