"""A workspace per test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_service.views.workspace.files import Workspace
from tests.kit import disks
from tests.projections.fakes import RUN, SECRET


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "workspaces"


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def folder(root: Path, workspace: Workspace) -> Path:
    """A run's folder with one page and one artifact."""
    workspace.write(RUN, {"plan.md": b"old", "artifacts/a.txt": b"a"})
    return root / RUN


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "disk", "256k") as disk:
        yield disk
