"""Bodies that no honest caller sends: none of them begins a run."""

import gzip

import pytest

from tests.attacks.doors import JSON, HttpDoor
from tests.attacks.kit import attack

GOAL = b'{"goal": "x"}'


@pytest.fixture
def target(door: HttpDoor) -> HttpDoor:
    return door


def bodies(**bodies: bytes) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("body", bodies.values(), ids=[name.replace("_", " ") for name in bodies])


def with_context(value: bytes) -> bytes:
    return b'{"goal": "x", "context": {"n": ' + value + b"}}"


@attack(7)
@bodies(two_to_the_70=b"1180591620717411303424", four_thousand_digits=b"9" * 4000)
async def test_a_number_that_no_column_holds(target: HttpDoor, body: bytes) -> bool:
    return await target.wakes(with_context(body))


@attack(11)
async def test_a_body_that_unfolds(target: HttpDoor) -> bool:
    return await target.wakes(gzip.compress(GOAL), JSON | {"Content-Encoding": "gzip"})


@attack(12, 82)
@pytest.mark.parametrize(
    "media", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json"]
)
async def test_json_under_another_name(target: HttpDoor, media: str) -> bool:
    return await target.wakes(GOAL, {"Content-Type": media})


@attack(18)
async def test_a_wake_id_for_another_goal(target: HttpDoor) -> bool:
    await target.begin("echo one", wake_id="said-before")
    return await target.wakes(b'{"goal": "echo two", "wake_id": "said-before"}')
