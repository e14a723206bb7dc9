"""Bodies that no honest caller sends: none of them begins a run."""

import gzip
import json
from typing import Any

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


@attack(1)
@bodies(empty=b"", null=b"null", a_list=b"[]", a_text=b'"x"', a_number=b"42")
async def test_what_is_no_request_at_all(target: HttpDoor, body: bytes) -> bool:
    return await target.wakes(body)


@attack(3)
@bodies(nan=b"NaN", infinity=b"Infinity", minus_infinity=b"-Infinity", overflow=b"1e999")
async def test_numbers_that_are_none(target: HttpDoor, body: bytes) -> bool:
    return await target.wakes(with_context(body))


@attack(5)
@bodies(plain=b'{"goal": "x", "goal": "y"}', disguised=b'{"goal": "x", "go\\u0061l": "y"}')
async def test_a_goal_said_twice(target: HttpDoor, body: bytes) -> bool:
    return await target.wakes(body)


@attack(6)
async def test_a_context_that_is_deep(target: HttpDoor) -> bool:
    return await target.wakes(with_context(b"[" * 200 + b"]" * 200))


@attack(7)
@bodies(two_to_the_70=b"1180591620717411303424", four_thousand_digits=b"9" * 4000)
async def test_a_number_that_no_column_holds(target: HttpDoor, body: bytes) -> bool:
    return await target.wakes(with_context(body))


@attack(8)
@bodies(high=b'"\\ud800"', low=b'"\\udc00"', in_a_key=b'{"\\ud800": 1}')
async def test_half_a_character(target: HttpDoor, body: bytes) -> bool:
    return await target.wakes(with_context(body))


@attack(9)
async def test_a_text_that_ends_in_the_middle(target: HttpDoor) -> bool:
    return await target.wakes(b'{"goal": "x\\u0000y"}')


@attack(10)
async def test_more_than_anybody_should_say(target: HttpDoor) -> bool:
    return await target.wakes(b'{"goal": "x", "context": {"n": "' + b"y" * 300_000 + b'"}}')


@attack(11)
async def test_a_body_that_unfolds(target: HttpDoor) -> bool:
    return await target.wakes(gzip.compress(GOAL), JSON | {"Content-Encoding": "gzip"})


@attack(12, 82)
@pytest.mark.parametrize(
    "media", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json"]
)
async def test_json_under_another_name(target: HttpDoor, media: str) -> bool:
    return await target.wakes(GOAL, {"Content-Type": media})


@attack(13)
@pytest.mark.parametrize("codec", ["utf-16", "utf-32", "utf-8-sig", "utf-16-le"])
async def test_json_in_another_coding(target: HttpDoor, codec: str) -> bool:
    return await target.wakes(GOAL.decode().encode(codec))


@attack(14)
@pytest.mark.parametrize(
    "said",
    [
        {"goal": {}},
        {"goal": "x", "run_id": "run_00000000000000000000000001"},
        {"goal": "x", "surprise": 1},
        *({"goal": "x", "constraints": {"max_loops": n}} for n in ("10", True, 1.5, -1, 0, 10**9)),
    ],
    ids=str,
)
async def test_what_has_another_shape(target: HttpDoor, said: dict[str, Any]) -> bool:
    return await target.wakes(json.dumps(said).encode())


@attack(15)
@pytest.mark.parametrize(
    "instant", ["2020-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2027-01-01T00:00:00", "20270101", "2027-W01-1"]
)
async def test_a_deadline_that_is_none(target: HttpDoor, instant: str) -> bool:
    return await target.wakes(json.dumps({"goal": "x", "constraints": {"deadline_at": instant}}).encode())


@attack(16)
@pytest.mark.parametrize("wake_id", ["", "x" * 10_000, "../x", "a.>", "a\nb", "\u202ea", "\uff41"], ids=ascii)
async def test_a_wake_id_that_is_no_name(target: HttpDoor, wake_id: str) -> bool:
    return await target.wakes(json.dumps({"goal": "x", "wake_id": wake_id}).encode())


@attack(18)
async def test_a_wake_id_for_another_goal(target: HttpDoor) -> bool:
    await target.begin("echo one", wake_id="said-before")
    return await target.wakes(b'{"goal": "echo two", "wake_id": "said-before"}')
