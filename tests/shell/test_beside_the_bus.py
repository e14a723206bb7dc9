"""What is done beside the messages of runs: dead letters that go, results that no stream keeps, messages that another
agent had, and time where a clock jumps.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from agent_service.archive.retention import KeepRunsSettings
from agent_service.bus.catch_up import MARK, Missed
from agent_service.bus.retention import NatsBesideRuns
from agent_service.bus.tap import MOST_WAITING_BYTES, Overheard
from agent_service.bus.topology import topology
from agent_service.run.arrival import Arrival
from agent_service.trust.identity import SystemClock
from ductile_gateway.bus.micro_service import serve_questions
from groundwork.nats.link import NatsLink
from groundwork.nats.settling import Delivery
from groundwork.nats.topology import set_up
from groundwork.service.errors import TryAgain
from schemas import subjects
from schemas.envelope import MSG_ID
from schemas.status import GatewayPruned
from tests.gateway.test_on_nats import fine
from tests.kit.fakes import FakeClock
from tests.kit.runs import NOON

DAY, HOUR, MIB = timedelta(days=1), 3600.0, 1024 * 1024
BY_DAYS, BY_BYTES = "agent.keep_runs.dead_letters_days: 1", "agent.keep_runs.max_gib.dead_letters: 3.63216e-06"

# Dead letters, and the gateway that is asked to forget


def beside(link: NatsLink, *, later: timedelta = timedelta(0), **rules: Any) -> NatsBesideRuns:
    return NatsBesideRuns(link, KeepRunsSettings(**rules), FakeClock(SystemClock().now() + later))


async def test_dead_letters_go_by_size_and_days_and_the_newest_message_of_their_stream_stays(link: NatsLink) -> None:
    async def numbers() -> list[int]:
        state = (await link.jetstream.stream_info(subjects.STREAM_DEAD_LETTERS)).state
        return list(range(state.first_seq, state.last_seq + 1))

    await set_up(link, topology(max_gib=1))
    for number in range(5):  # of about a kilobyte each; one tells of another
        subject = subjects.REJECTED if number == 1 else subjects.DEAD_LETTERS_LOOP
        await link.publish(subject, b"x" * 1000, msg_id=f"letter-{number}", headers={})
    assert await beside(link, dead_letters_days=1).letters(dry_run=False) == {}
    old, large = beside(link, dead_letters_days=1, later=2 * DAY), beside(link, max_gib={"dead_letters": 3900 / 2**30})
    assert await old.letters(dry_run=True) == {BY_DAYS: 4}
    assert await numbers() == [1, 2, 3, 4, 5]
    assert await large.letters(dry_run=False) == {BY_BYTES: 2}
    assert await numbers() == [3, 4, 5]
    assert await old.letters(dry_run=False) == {BY_DAYS: 2}
    assert await numbers() == [5]
    assert await old.letters(dry_run=False) == {}


async def test_a_gateway_is_asked_and_where_none_answers_the_command_for_its_machine_is_named(link: NatsLink) -> None:
    asked: list[bool] = []

    async def prune(dry_run: bool) -> GatewayPruned:
        asked.append(dry_run)
        return GatewayPruned(rows={"answers": 3}, dry_run=dry_run)

    told = await beside(link).prune(dry_run=False)
    assert (told.gateway, "`ductile-gateway prune`" in told.trouble) == ({}, True)
    async with serve_questions(link, fine) as questions:
        await questions.answer_prune(prune)
        assert (await beside(link).prune(dry_run=True)).gateway == {"answers": 3}
        assert (await beside(link).prune(dry_run=False)).trouble == ""
    assert asked == [True, False]


# What came while another agent had the bus


async def test_a_bus_that_is_silent_at_first_is_asked_again_until_what_was_missed_is_read(
    tmp_path: Path, link: NatsLink
) -> None:
    asked, taken, mark = [], [], tmp_path / MARK

    class SilentAtFirst:
        @property
        def jetstream(self) -> object:
            asked.append(1)
            if len(asked) == 1:
                raise TryAgain("silent")
            return link.jetstream

    class Taking:
        async def receive(self, arrival: Arrival) -> None:
            taken.append(arrival.body)

    await set_up(link, topology(max_gib=0.1))
    began = datetime.now(UTC)
    await link.publish(subjects.TOOL_RESULT, b"the answer", msg_id="one", headers={})
    mark.touch()
    bus, intake = SilentAtFirst(), Taking()
    async with asyncio.timeout(20):
        await Missed(bus, intake, tmp_path, slots=4).hear(began)  # type: ignore[arg-type]
    assert (taken, mark.exists(), len(asked) > 1) == ([b"the answer"], False, True)


# Results that no stream keeps are heard as they pass


class Passing:
    """A bus on which results pass, and the one who listens."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.overheard = Overheard(lambda msg_id, body: self.taken.append((msg_id, body)))

    async def subscribe(self, subject: str, callback: Any) -> None:
        assert subject == subjects.TOOL_RESULT
        self.callback = callback

    async def passes(self, msg_id: str, body: bytes) -> None:
        await self.callback(Msg(None, subjects.TOOL_RESULT, "", body, {MSG_ID: msg_id}))  # type: ignore[arg-type]

    def stored(self, msg_id: str, body: bytes) -> None:
        about: dict[str, Any] = {"stream_seq": 1, "delivered": 1, "at": NOON, "headers": {MSG_ID: msg_id}}
        self.overheard.delivered(Delivery(subject=subjects.TOOL_RESULT, body=body, **about))


@pytest.fixture
async def bus() -> Passing:
    passing = Passing()
    await passing.overheard.listen(passing)  # type: ignore[arg-type]
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


# The agent's clock beside one that jumps


def test_a_clock_that_is_set_back_by_an_hour_makes_nothing_twice_as_late_and_no_new_run_older() -> None:
    shown, passed = [NOON], [0.0]
    clock = SystemClock(lambda: shown[0], lambda: passed[0])

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
