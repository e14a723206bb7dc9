"""Ductiles for tests: `fake` for what only a fake can do, `ductile` for what holds on both."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ductile.fake import FakeDuctile
from tests.ductile.real import RealDuctile
from tests.ductile.under_test import DuctileUnderTest

NO_BINARY = "no Ductile: bring a Ductile binary and set DUCTILE_BIN to its path"


@pytest.fixture
def fake() -> Iterator[FakeDuctile]:
    """A fake of the measured version, in which nothing goes wrong yet."""
    with FakeDuctile() as ductile:
        yield ductile


@pytest.fixture
def newer() -> Iterator[FakeDuctile]:
    """A fake of the newer version, with tokens in its narrower scopes beside the usual ones."""
    scopes = {
        "gateway": ("plugin:rw", "jobs:ro", "events:ro"),
        "lister": ("plugin:ro",),
        "watcher": ("plugin:invoke:ro", "jobs:status:ro", "jobs:tree:ro", "jobs:logs:ro"),
    }
    with FakeDuctile(version="N", tokens=scopes) as ductile:
        yield ductile


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.ductile)])
def ductile(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DuctileUnderTest]:
    """The fake, and a real Ductile where there is one."""
    if request.param == "fake":
        yield request.getfixturevalue("fake")
        return
    binary = os.environ.get("DUCTILE_BIN")
    if not binary:
        pytest.skip(NO_BINARY)
    folder = tmp_path / "ductile"
    folder.mkdir()
    real = RealDuctile(binary, folder)
    yield real
    real.close()
