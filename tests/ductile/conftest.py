"""Ductiles for tests: `fake` for what only a fake can do, `ductile` for what holds on both."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
    """A fake of the newer version."""
    with FakeDuctile(version="N") as ductile:
        yield ductile


REAL = pytest.param("real", marks=pytest.mark.ductile)


@pytest.fixture(params=["fake", REAL])
def ductile(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DuctileUnderTest]:
    """The fake, and a real Ductile where there is one."""
    with _made(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=["fake", REAL])
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DuctileUnderTest]:
    """Another Ductile, beside a fake."""
    with _made(request.param, tmp_path) as made:
        yield made


@contextmanager
def _made(kind: str, folder: Path) -> Iterator[DuctileUnderTest]:
    if kind == "real":
        if "DUCTILE_BIN" not in os.environ:
            pytest.skip(NO_BINARY)
        (folder / "ductile").mkdir()
        with closing(RealDuctile(os.environ["DUCTILE_BIN"], folder / "ductile")) as real:
            yield real
        return
    with FakeDuctile() as fake:
        yield fake
