"""One stand for all attacks of a worker, and the twins beside it."""

from collections.abc import Iterator

import pytest

from tests.attacks.doors import HttpDoor
from tests.attacks.stand import TOKENS, Stand, standing
from tests.attacks.twins import api


@pytest.fixture(scope="session")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("stand")) as stand:
        yield stand


@pytest.fixture(scope="session")
def twin_of_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with api.api(tmp_path_factory.mktemp("twin")) as url:
        yield url


@pytest.fixture
def door(side: str, request: pytest.FixtureRequest) -> Iterator[HttpDoor]:
    """The API for a caller who may do everything, on the side that is attacked. Ours is there afterwards."""
    protected = side == "ours"
    place = request.getfixturevalue("stand" if protected else "twin_of_api")
    yield HttpDoor(url=place.api if protected else place, protected=protected, token=TOKENS["operator"])
    assert not protected or place.living(), "this took a service down, or made it say that it is not ready"
