"""Runs the commands in the pages of the documentation.

Text behind the language of a block, which readers do not see, says how to run it:

    ```bash             run, in the order of the page, in one shell
    ```bash follow      runs until the end; the next command waits for its first output
    ```bash follow X    the next command waits until it has printed X
    ```bash by-hand     not run: it needs a key, money, or the tests themselves
    ```bash machine     run as root on a machine that boots systemd, in tests/deploy/test_machine.py
    ```bash NAME/FILE   the content of that file, in any language: not a command
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from schemas.operations import OPERATIONS, Operation

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
WITHIN_S = 180.0

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PLACEHOLDER = re.compile(r"(?<![$\w{])RUN(?![\w=}])")
_PRELUDE = """
set -eu -o pipefail
newest() { agentic runs --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["runs"][0]["run_id"])'; }
said() { for _ in $(seq 600); do if grep -q -- "$1" "$2"; then return; fi; sleep 0.1; done; cat "$2"; return 1; }
"""


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    heading: str
    language: str
    mark: str
    text: str

    @property
    def is_file(self) -> bool:
        return "/" in self.mark

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        before = text[: found.start()]
        headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", before), re.MULTILINE)
        language, _, mark = found[1].strip().partition(" ")
        yield Block(page, before.count("\n") + 1, headings[-1] if headings else "", language, mark, found[2])


def written(page: Path, folder: Path) -> None:
    for block in filter(lambda block: block.is_file, blocks(page)):
        path = folder / block.mark
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        path.chmod(0o755 if block.text.startswith("#!") else 0o644)


def play(some: list[Block], cwd: Path, environ: dict[str, str], **instead: str) -> str:
    """Runs blocks in one shell and returns their output. `instead` replaces commands."""
    script = cwd / "page.sh"
    script.write_text(_PRELUDE + "".join(_played(block, number, instead) for number, block in enumerate(some)))
    with (cwd / "page.out").open("wb") as out:
        process = subprocess.Popen(
            ("bash", str(script)),
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(WITHIN_S)
        finally:  # what follows, follows until then
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
    said = "".join(file.read_text() for file in (cwd / "page.out", *sorted(cwd.glob("follow-*.out"))))
    assert process.wait() == 0, said[-6000:]
    return said


def _played(block: Block, number: int, instead: dict[str, str]) -> str:
    text = _PLACEHOLDER.sub('"$(newest)"', block.text)
    for command, other in instead.items():
        text = text.replace(command.replace("_", " "), other)
    if not block.mark.startswith("follow"):
        return f"echo '::{block.place}'\n{text}\n"
    until, out = shlex.quote(block.mark.removeprefix("follow").strip() or "."), f"follow-{number}.out"
    return f"echo '::{block.place}'\n(\n{text}\n) >{out} 2>&1 &\nsaid {until} {out}\n"


def as_table(operations: Iterable[Operation] = OPERATIONS) -> str:
    rows = (
        f"| `{one.method} {one.path}` | {f'`{one.scope}`' if one.scope else ''} | {one.does} |".replace("|  |", "| |")
        for one in operations
        if one.path and one.listed
    )
    return "\n".join(("| call | scope | does |", "|---|---|---|", *rows))
