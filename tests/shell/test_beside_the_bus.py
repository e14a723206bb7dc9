"""Work beside the messages of runs: the gateway's rows, results outside streams, clocks that jump."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from nats.aio.msg import Msg

from agent_service.bus.gateway import prune_rows
from agent_service.bus.messages import MOST_WAITING_BYTES, DroppedResults
from agent_service.trust.identity import SystemClock
from ductile_gateway.bus.incoming import answer_prune, serve_endpoints
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Delivery
from groundwork.service import machine
from schemas import subjects
from schemas.envelope import MSG_ID
from schemas.status import GatewayPruned
from tests.gateway.test_on_nats import fine
from tests.kit.runs import NOON

HOUR, MIB = 3600.0, 1024 * 1024


async def test_a_gateway_is_asked_and_where_none_answers_that_is_told(link: NatsLink) -> None:
    asked: list[bool] = []

    async def prune(dry_run: bool) -> GatewayPruned:
        asked.append(dry_run)
        return GatewayPruned(rows={"answers": 3}, dry_run=dry_run)

    told = await prune_rows(link, dry_run=False)
    assert (told.rows, "no gateway answers" in told.trouble) == ({}, True)
    async with serve_endpoints(link, fine) as service:
        await answer_prune(service, prune)
        assert (await prune_rows(link, dry_run=True)).rows == {"answers": 3}
        assert (await prune_rows(link, dry_run=False)).trouble == ""
    assert asked == [True, False]


# Results that no stream keeps are heard as they pass


class Passing:
    """Results that pass on the bus."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.overheard = DroppedResults(lambda msg_id, body: self.taken.append((msg_id, body)))

    async def passes(self, msg_id: str, body: bytes) -> None:
        await self.overheard.hear(Msg(None, subjects.TOOL_RESULT, "", body, {MSG_ID: msg_id}))  # type: ignore[arg-type]

    def stored(self, msg_id: str, body: bytes) -> None:
        about: dict[str, Any] = {"seq": 1, "delivered": 1, "at": NOON, "headers": {MSG_ID: msg_id}}
        self.overheard.remember(Delivery(subject=subjects.TOOL_RESULT, body=body, **about))


@pytest.fixture
def bus() -> Passing:
    return Passing()


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


# The agent's clock beside one that jumps


async def test_a_clock_that_is_set_back_by_an_hour_makes_nothing_twice_as_late_and_no_new_run_older() -> None:
    shown, passed = [NOON], [0.0]
    machine.use(replace(machine.this(), wall=lambda: shown[0], monotonic=lambda: passed[0]))
    clock = SystemClock()

    def passes(seconds: float) -> None:
        shown[0] += timedelta(seconds=seconds)
        passed[0] += seconds

    due_at, first = clock.now() + timedelta(seconds=3), clock.new_run_id()
    shown[0] -= timedelta(seconds=HOUR)
    passes(1.0)
    assert clock.new_run_id() > first
    passes(4.9)
    assert clock.now() < due_at
    passes(0.1)
    assert clock.now() >= due_at
