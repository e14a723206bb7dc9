"""JSON that is read strictly. What is refused is in test_hostile_bodies; here is what must still be taken."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_service.api import requests
from agent_service.api.refusals import Refusal
from groundwork.service.strict_json import DEEPEST, LARGEST, NotStrictJson, read

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-LARGEST, LARGEST)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5).filter(str.isascii), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_every_value_that_json_has_is_read_as_it_is(value: object, escaped: bool) -> None:
    assert read(json.dumps(value, ensure_ascii=escaped).encode()) == value


@given(st.binary(max_size=200))
def test_bytes_are_read_or_refused_and_never_break_the_reader(body: bytes) -> None:
    try:
        value = read(body)
    except NotStrictJson:
        return
    assert read(json.dumps(value, allow_nan=False).encode()) == value


@pytest.mark.parametrize("number", [LARGEST, -LARGEST])
def test_the_largest_numbers_are_taken_and_the_next_are_not(number: int) -> None:
    assert read(str(number).encode()) == number
    with pytest.raises(NotStrictJson, match="64 bits"):
        read(str(number * 2).encode())


def test_brackets_in_a_text_are_not_levels() -> None:
    assert read(json.dumps("[" * 10_000 + '"').encode()) == "[" * 10_000 + '"'


def test_as_many_levels_are_taken_as_there_may_be() -> None:
    assert read(b"[" * DEEPEST + b"]" * DEEPEST)
    with pytest.raises(NotStrictJson, match="levels"):
        read(b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1))


def test_a_whole_surrogate_pair_is_one_letter() -> None:
    assert read(b'"\\ud83d\\ude00"') == "\U0001f600"


@pytest.mark.attack(101)
@pytest.mark.parametrize("context", [{"n": [0] * 120_000}, {"n": [[0]] * 60_000}, {f"k{n}": n for n in range(16_000)}])
def test_a_wake_with_values_without_end_costs_little_more_than_reading_it(context: dict[str, Any]) -> None:
    body = json.dumps({"goal": "x", "context": context}, separators=(",", ":")).encode()

    def refused() -> str:
        with pytest.raises(Refusal) as refusal:
            requests.read(requests.WakeRequest, body)
        return str(refusal.value)

    assert "at most 10000 values" in refused()
    reading = min(cpu_of(lambda: json.loads(body)) for _ in range(5))
    assert min(cpu_of(refused) for _ in range(5)) < 12 * reading


def cpu_of(deed: Callable[[], object]) -> float:
    before = time.process_time()
    deed()
    return time.process_time() - before


def test_a_context_of_many_values_within_the_bound_is_taken() -> None:
    body = json.dumps({"goal": "x", "context": {"n": [0] * 9_000}}).encode()
    assert requests.read(requests.WakeRequest, body).context == {"n": [0] * 9_000}
