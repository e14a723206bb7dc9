"""Records `agentic demo` as an animated picture: `python docs/images/record.py` writes demo.svg beside it."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path

COLUMNS, ROWS, LINE, GLYPH = 118, 30, 17, 7.45
LONGEST_PAUSE_S, END_S = 1.2, 4.0
RUN_ID = re.compile(r"run_[0-9A-Z]{26}")


def heard(folder: str) -> Iterator[tuple[float, str]]:
    """Each line of the demo, and the seconds since the one before."""
    command = (sys.executable, "-m", "agent_service", "demo", "--dir", f"{folder}/demo")
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    with subprocess.Popen(  # noqa: S603 # our own command
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        before = time.monotonic()
        for line in process.stdout or ():
            now = time.monotonic()
            yield min(now - before, LONGEST_PAUSE_S), tidy(line.rstrip(), folder)
            before = now


def tidy(line: str, folder: str) -> str:
    line = line.replace(f"{folder}/demo", ".demo").replace(".venv/bin/agentic", "agentic")
    return RUN_ID.sub("run_01M8…", line)[:COLUMNS]


def drawn(lines: list[tuple[float, str]]) -> Iterator[str]:
    width, height = round(COLUMNS * GLYPH) + 24, ROWS * LINE + 24
    whole = sum(pause for pause, _ in lines) + END_S
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="12.4" '
        'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" fill="#c9d1d9" xml:space="preserve">'
    )
    yield f"<title>agentic demo</title><rect width='{width}' height='{height}' rx='8' fill='#0d1117'/>"
    yield f"<svg x='12' y='12' width='{width - 24}' height='{height - 24}'><g>"
    at, moments, shifts = 0.0, [0.0], ["0 0"]
    for number, (pause, line) in enumerate(lines):
        at += pause
        if number >= ROWS:
            moments.append(at / whole)
            shifts.append(f"0 {-(number - ROWS + 1) * LINE}")
        style = ' fill="#ff7b72" font-weight="bold"' if "kill -9" in line else ' fill="#7ee787"' * line.startswith("$")
        yield (
            f'<text y="{number * LINE + 12}"{style} opacity="0">{escape(line)}<animate attributeName="opacity" '
            f'values="0;1" keyTimes="0;{max(at / whole, 0.001):.4f}" calcMode="discrete" dur="{whole:.1f}s" '
            'repeatCount="indefinite"/></text>'
        )
    yield (
        f'<animateTransform attributeName="transform" type="translate" values="{";".join(shifts)}" '
        f'keyTimes="{";".join(f"{moment:.4f}" for moment in moments)}" calcMode="discrete" dur="{whole:.1f}s" '
        'repeatCount="indefinite"/></g></svg></svg>'
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        recorded = list(heard(folder))
    Path(__file__).with_name("demo.svg").write_text("\n".join(drawn(recorded)) + "\n", encoding="utf-8")
