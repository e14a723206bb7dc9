"""Transcripts in `transcripts/*.txt`, one file for each ability.

`pytest --update` renews the outcomes; then read the difference.
"""

import re
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.core.transcripts import rendered

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def case(path: Path) -> object:
    """The first line of a file names its attacks of docs/SECURITY.md."""
    attacks = re.match(r"attacks: ([\d ]+)\n", path.read_text(encoding="utf-8"))
    marks = [pytest.mark.attack(*map(int, attacks[1].split()))] if attacks else []
    return pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.parametrize("path", [case(path) for path in FILES])
def test_a_run_does_what_its_transcript_says(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    today = rendered(text)
    if request.config.getoption("--update"):
        path.write_text(today, encoding="utf-8")
        return
    difference = [*unified_diff(text.splitlines(), today.splitlines(), "written", "today", lineterm="")]
    assert not difference, "\n".join(difference)
