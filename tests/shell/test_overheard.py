"""Results that no stream keeps are heard as they pass, and no flood of them fills the agent's memory."""

from datetime import UTC, datetime
from typing import cast

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from agent_service.bus.tap import MOST_WAITING_BYTES, Overheard
from groundwork.nats.consuming.settling import Delivery
from groundwork.nats.link import NatsLink
from schemas import subjects
from schemas.envelope import MSG_ID

MIB = 1024 * 1024


class Passing:
    """A bus on which results pass, and the one who listens."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.overheard = Overheard(lambda msg_id, body: self.taken.append((msg_id, body)))

    async def subscribe(self, subject: str, callback: object) -> None:
        assert subject == subjects.TOOL_RESULT
        self.callback = callback

    async def passes(self, msg_id: str, body: bytes) -> None:
        await self.callback(Msg(cast("Client", None), subjects.TOOL_RESULT, "", body, {MSG_ID: msg_id}))  # type: ignore[operator]

    def stored(self, msg_id: str, body: bytes) -> None:
        self.overheard.delivered(
            Delivery(
                subject=subjects.TOOL_RESULT,
                body=body,
                headers={MSG_ID: msg_id},
                stream_seq=1,
                delivered=1,
                at=datetime.now(UTC),
            )
        )


@pytest.fixture
async def bus() -> Passing:
    passing = Passing()
    await passing.overheard.listen(cast("NatsLink", passing))
    return passing


@pytest.mark.parametrize("passes_first", [True, False], ids=["it passes first", "the stream is first"])
async def test_a_second_one_that_is_the_same_to_the_byte_answers_anew_unless_it_names_its_attempt(
    bus: Passing, *, passes_first: bool
) -> None:
    named = b'{"payload": {"attempt": 1}}'
    for body in (b"{}", named):
        if passes_first:
            await bus.passes(str(body), body)
        bus.stored(str(body), body)
        if not passes_first:
            await bus.passes(str(body), body)
        assert bus.taken == []
    for body in (b"{}", named):
        await bus.passes(str(body), body)
    assert bus.taken == [(str(b"{}"), b"{}")]


@pytest.mark.attack(99)
async def test_a_flood_under_ids_that_never_come_again_gives_up_the_oldest(bus: Passing) -> None:
    for number in range(2 * MOST_WAITING_BYTES // MIB):
        await bus.passes(f"id-{number}", bytes([number]) * MIB)
    bus.stored("id-0", b"other")
    assert bus.taken == []
    bus.stored(f"id-{number}", b"other")
    assert bus.taken == [(f"id-{number}", bytes([number]) * MIB)]
