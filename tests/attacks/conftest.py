"""One stand for all attacks of a worker, and the twins beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.doors import HttpDoor
from tests.attacks.stand import TOKENS, Stand, standing
from tests.attacks.twins import api


@pytest.fixture(scope="session")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("stand")) as stand:
        yield stand


@pytest.fixture(scope="session")
def files_of_twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the twin of the API has a folder for each run."""
    return tmp_path_factory.mktemp("twin") / "workspaces"


@pytest.fixture(scope="session")
def twin_of_api(files_of_twin: Path) -> Iterator[str]:
    with api.api(files_of_twin) as url:
        yield url


@pytest.fixture
def door(side: str, request: pytest.FixtureRequest) -> Iterator[HttpDoor]:
    """The API for a caller who may do everything, on the side that is attacked. Ours is there afterwards."""
    protected = side == "ours"
    place = request.getfixturevalue("stand" if protected else "twin_of_api")
    yield HttpDoor(url=place.api if protected else place, protected=protected, token=TOKENS["operator"])
    assert not protected or place.living(), "this took a service down, or made it say that it is not ready"


@pytest.fixture
def outside(side: str, request: pytest.FixtureRequest) -> Path:
    """The folder of a run, with `secret` beside it, and a link and a hard link to that in it."""
    if side == "ours":
        workspaces = request.getfixturevalue("stand").folder / "workspaces"
    else:
        workspaces = request.getfixturevalue("files_of_twin")
    run: Path = workspaces / "run_01JD0000000000000000000000"
    (run / "artifacts").mkdir(parents=True, exist_ok=True)
    secret = workspaces / "secret"
    secret.write_text("what lies outside")
    if not (run / "link").is_symlink():
        (run / "link").symlink_to(secret)
        (run / "hard").hardlink_to(secret)
    return run
