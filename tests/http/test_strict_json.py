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
from groundwork.service.strict import LARGEST, NotStrictJson, read

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


@given(st.binary(max_size=200))
def test_bytes_are_read_or_refused_and_never_break_the_reader(body: bytes) -> None:
    try:
        value = read(body)
    except NotStrictJson:
        return
    assert read(json.dumps(value, allow_nan=False).encode()) == value


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
