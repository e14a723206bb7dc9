"""Ductiles for tests: `fake` alone, or `ductile`, the fake and a real one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ductile.fake import FakeDuctile
from tests.ductile.real import NO_BINARY, RealDuctile
from tests.ductile.under_test import DuctileUnderTest

REAL = pytest.param("real", marks=pytest.mark.ductile)


@pytest.fixture
def fake() -> Iterator[FakeDuctile]:
    with FakeDuctile() as ductile:
        yield ductile


@pytest.fixture(params=["fake", REAL])
def ductile(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DuctileUnderTest]:
    with _made(request.param, tmp_path / "ductile") as made:
        yield made


@pytest.fixture(scope="module", params=["fake", REAL])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuctileUnderTest]:
    """One Ductile for all tests of a file. Each test asks only about its own calls."""
    with _made(request.param, tmp_path_factory.mktemp("shared") / "ductile") as made:
        yield made


@contextmanager
def _made(kind: str, folder: Path) -> Iterator[DuctileUnderTest]:
    if kind == "real" and "DUCTILE_BIN" not in os.environ:
        pytest.skip(NO_BINARY)
    folder.mkdir()
    with FakeDuctile() if kind == "fake" else RealDuctile(folder) as made:
        yield made
