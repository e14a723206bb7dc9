"""What the agent says of a run: read leniently, and told in a callback that is small whatever the run has to say."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile_gateway.outbound.lifecycle import MOST_BYTES, LifecycleEvent, Unreadable, callback_body, read_event
from tests.gateway.outbound_parts import HOOK, Town, an_event, down, read
from tests.gateway.parts import NOON, RUN
from tests.kit.waiting import until

URL = f"https://traces.example/{RUN}"
DONE = [{"id": f"d{n}", "text": f"Item {n} " + "ü" * 500, "done": True, "evidence": ["step:1"] * 50} for n in range(50)]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Long ones, and such as JSON makes longer.
    | st.builds(lambda text, times: text * times, st.text(max_size=20), st.integers(0, 500)),
    lambda inner: st.lists(inner, max_size=4).map(lambda items: items * 20) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def saying(**more: Any) -> LifecycleEvent:
    event = an_event()
    event["payload"] |= {"trace_url": URL} | more
    return read(event)


def data_of(event: LifecycleEvent) -> dict[str, Any]:
    body = callback_body(event)
    assert len(body) <= MOST_BYTES <= 20_000
    content = json.loads(body)
    assert (content["type"], content["timestamp"]) == ("agent.completed", "2026-11-21T12:00:00Z")
    data: dict[str, Any] = content["data"]
    return data


def test_what_fits_is_told_as_it_is() -> None:
    room = MOST_BYTES - len(callback_body(saying(outcome="")))
    whole = data_of(saying(outcome="x" * room))
    assert whole["outcome"] == "x" * room
    assert "truncated" not in whole
    assert data_of(saying(outcome="x" * (room + 1)))["truncated"] is True


@pytest.mark.parametrize("name", ["outcome", "goal", "reason", "a text of a newer agent"])
@pytest.mark.parametrize("text", ["x" * 200_000, "ü" * 100_000, "\x01" * 30_000, "😀" * 30_000])
def test_a_long_text_is_cut_with_a_mark(name: str, text: str) -> None:
    data = data_of(saying(**{name: text}))
    head, _, mark = data[name].partition("\n")
    assert text.startswith(head)
    assert len(head.encode()) > 1000
    assert mark == f"[cut: {len(head)} of {len(text)} characters are shown]"
    assert (data["run_id"], data["trace_url"], data["truncated"]) == (RUN, URL, True)


def test_a_long_list_loses_its_end_and_the_rest_stays_whole() -> None:
    paths = [f"artifacts/page-{number:04d}.html" for number in range(5000)]
    data = data_of(saying(artifacts=paths, steps_taken=7))
    assert data["artifacts"] == paths[: len(data["artifacts"])]
    assert len(data["artifacts"]) > 100
    assert (data["outcome"], data["steps_taken"]) == ("42", 7)


def test_of_everything_long_something_is_left() -> None:
    data = data_of(saying(goal="g" * 32_000, outcome="o" * 100_000, definition_of_done=DONE, artifacts=["a"] * 10_000))
    assert data["definition_of_done"][0]["id"] == "d0"
    assert data["goal"].startswith("gggg")
    assert data["outcome"].startswith("oooo")


def test_what_a_person_is_asked_to_allow_is_named_also_where_its_arguments_are_cut() -> None:
    asked = {"kind": "approval", "step": 3, "tool": "mail", "command": "send", "arguments_hash": "0123456789abcdef" * 2}
    cut = data_of(saying(**asked, arguments={"text": "x" * 50_000}))
    assert cut | asked | {"truncated": True} == cut
    assert "characters are shown]" in cut["arguments"]["text"]
    hostile = dict.fromkeys(("kind", "tool", "command", "arguments_hash", "expires_at", "reason"), "\x01" * 5000)
    assert data_of(saying(**hostile, **{f"field-{number}": number for number in range(5000)}))["run_id"] == RUN


def test_where_nothing_else_helps_the_run_is_still_named() -> None:
    many = {f"field-{number}": number for number in range(5000)}
    assert data_of(saying(**many)) == {"run_id": RUN, "trace_url": URL, "truncated": True}
    assert data_of(saying(**many, trace_url="https://x/" + "y" * 30_000)) == {"run_id": RUN, "truncated": True}


@settings(max_examples=200, deadline=None)
@given(payload=st.dictionaries(st.text(), VALUES, max_size=6), url=VALUES)
def test_whatever_is_said_the_body_is_small_and_json(payload: dict[str, Any], url: Any) -> None:
    assert data_of(saying(**payload | {"trace_url": url, "run_id": RUN}))["run_id"] == RUN


async def test_every_try_has_the_same_bytes_also_after_a_restart(tmp_path: Path) -> None:
    town = Town(tmp_path)
    event = an_event(callback=HOOK)
    event["payload"]["outcome"] = "o" * 100_000
    town.sender.answers["callback"] = down
    async with town.telling() as outbound:
        await outbound.take(read(event))
        await until(lambda: len(town.sender.tries) == 1)
    async with town.telling() as outbound:
        await outbound.take(read(event, NOON + timedelta(minutes=1)))
        await town.pass_by(600)
    bodies = {delivery.body for delivery in town.sender.tries}
    assert len(town.sender.tries) > 1
    assert bodies == {callback_body(read(event))}


def test_a_receiver_is_told_the_event_and_when_and_not_where_others_are_told() -> None:
    body = json.loads(callback_body(read(an_event(callback="https://example.org/token"))))
    assert body["type"] == "agent.completed"
    assert body["timestamp"] == "2026-11-21T12:00:00Z"
    assert body["data"] == {"run_id": RUN, "goal": "Find the answer — ü.", "outcome": "42"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"type": "agent.failed", "payload": {"run_id": "r"}, "dedupe_key": "k"}',
        b'{"type": "agent.completed", "payload": {"run_id": "r"}}',
        b'{"type": "agent.completed", "payload": {"run_id": "r"}, "dedupe_key": "a\\r\\nb"}',
        b'{"type": "agent.completed", "payload": {"run_id": "r r"}, "dedupe_key": "k"}',
        b'{"type": "agent.completed", "payload": [], "dedupe_key": "k"}',
        b'{"type": "agent.completed", "payload": {"run_id": "r", "step": NaN}, "dedupe_key": "k"}',
        b'{"type": "agent.completed", "payload": {"run_id": "r", "step": 1e999}, "dedupe_key": "k"}',
        b'{"type": "agent.completed", "payload": {"run_id": "r", "goal": "\\ud800"}, "dedupe_key": "k"}',
    ],
)
def test_a_message_that_is_no_event_of_a_run_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read_event("agent.completed", body, at=NOON)


def test_an_event_of_a_newer_agent_is_passed_on_with_all_that_it_says() -> None:
    event = an_event()
    event["payload"]["mood"] = "cheerful"
    assert read(event).payload["mood"] == "cheerful"
