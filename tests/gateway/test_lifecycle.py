"""What the agent says of a run: read leniently, and told in a callback that is small whatever the run has to say."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.outbound.lifecycle import MOST_BYTES, LifecycleEvent, Unreadable, callback_body, read_event
from tests.gateway.outbound_parts import Town, an_event, down, read
from tests.gateway.parts import NOON, RUN
from tests.kit.waiting import until

URL = f"https://traces.example/{RUN}"


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


def test_what_a_person_is_asked_to_allow_is_named_also_where_its_arguments_are_cut() -> None:
    asked = {"kind": "approval", "step": 3, "tool": "mail", "command": "send", "arguments_hash": "0123456789abcdef" * 2}
    cut = data_of(saying(**asked, arguments={"text": "x" * 50_000}))
    assert cut | asked | {"truncated": True} == cut
    assert "characters are shown]" in cut["arguments"]["text"]
    hostile = dict.fromkeys(("kind", "tool", "command", "arguments_hash", "expires_at", "reason"), "\x01" * 5000)
    assert data_of(saying(**hostile, **{f"field-{number}": number for number in range(5000)}))["run_id"] == RUN


async def test_every_try_has_the_same_bytes_also_after_a_restart(tmp_path: Path) -> None:
    town = Town(tmp_path)
    event = an_event(has_callback=True)
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
