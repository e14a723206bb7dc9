"""Services shared by all attacks of a worker, and their unprotected twins."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.services import TOKENS, HttpCaller, Services, running_services
from tests.attacks.twins import api


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with running_services(tmp_path_factory.mktemp("services")) as services:
        yield services


@pytest.fixture(scope="session")
def files_of_twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the API's twin has a folder for each run."""
    return tmp_path_factory.mktemp("twin") / "workspaces"


@pytest.fixture(scope="session")
def twin_of_api(files_of_twin: Path) -> Iterator[str]:
    with api.api(files_of_twin) as url:
        yield url


@pytest.fixture
def caller(side: str, request: pytest.FixtureRequest) -> Iterator[HttpCaller]:
    """API of the attacked side, with a token for everything. Checks that ours still answers afterwards."""
    protected = side == "ours"
    place = request.getfixturevalue("services" if protected else "twin_of_api")
    yield HttpCaller(url=place.api if protected else place, protected=protected, token=TOKENS["operator"])
    assert not protected or place.living(), "this took a service down, or made it say that it is not ready"


@pytest.fixture
def outside(side: str, request: pytest.FixtureRequest) -> Path:
    """Folder of a run, with `secret` beside it, and a symbolic and a hard link to that inside."""
    if side == "ours":
        workspaces = request.getfixturevalue("services").folder / "workspaces"
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
