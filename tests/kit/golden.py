"""Golden files: texts that are compared whole, and rewritten by `pytest --update`."""

from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[str | Path, str], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a text with this file, or with the one of this name in the folder `golden` beside the test."""

    def compare(name: str | Path, text: str) -> None:
        beside = Path(request.path).parent / "golden"
        file = name if isinstance(name, Path) else beside / f"{name.replace(' ', '-')}.txt"
        if request.config.getoption("--update"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), f"pytest --update writes {file} anew; read the difference"

    return compare
