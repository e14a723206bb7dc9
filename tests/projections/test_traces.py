"""Sending traces: each span reaches a receiver that is there, or is back, and nothing is kept meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_service.run.moments import retell
from agent_service.telling.spans import sending
from agent_service.telling.spans.sending import MARGIN, FileMark, Traces
from agent_service.telling.spans.trace import spans
from groundwork.service.errors import TryAgain
from groundwork.telemetry.settings import sampler
from groundwork.telemetry.span import Span
from tests.core.script import NOON
from tests.kit.memory_log import Member, MemoryLog, joined
from tests.kit.waiting import until
from tests.projections.fakes import Journals
from tests.projections.journals import commits_of, committed, entries_of, worked_example

ENTRIES = entries_of(worked_example())
ALL = list(spans(retell(ENTRIES)))
PART = list(spans(retell(ENTRIES[:4])))
RUN_ID = ENTRIES[0].run_id
NEVER = datetime.max.replace(tzinfo=UTC)


class Kept(Journals):
    """As the store has them, which is locked when it is first asked which runs are unsettled."""

    locked = True

    async def unsettled(self, since: datetime) -> Sequence[str]:
        if self.locked:
            self.locked = False
            raise TryAgain("the database is locked")
        return [run_id for run_id, entries in self.journals.items() if entries[-1].at >= since]


@dataclass
class Receiver:
    """Takes spans, or is away."""

    away: bool = False
    asked: int = 0
    got: list[Span] = field(default_factory=list)

    def take(self, batch: Sequence[Span]) -> bool:
        self.asked += 1
        if not self.away:
            self.got.extend(batch)
        return not self.away


@dataclass
class Noted:
    """Says that all before `at` was sent."""

    at: datetime = NEVER
    times: int = 0

    def note(self) -> None:
        self.times += 1

    def noted(self) -> datetime:
        return self.at


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "FIRST_PAUSE_S", 0.01)


@asynccontextmanager
async def sent(receiver: Receiver, journals: Kept, mark: Noted) -> AsyncIterator[Traces]:
    """What sends, at work."""
    traces = Traces(journals, receiver.take, mark, keeps=sampler({}))
    task = asyncio.create_task(traces.run())
    yield traces
    task.cancel()


async def test_a_run_is_sent_as_it_goes_on_and_nothing_of_it_twice() -> None:
    receiver, mark = Receiver(), Noted()
    async with sent(receiver, Kept(), mark) as traces:
        traces.take(tuple(retell(ENTRIES[:4])))
        await until(lambda: receiver.got == PART)
        traces.take(tuple(retell(ENTRIES)))
        await until(lambda: receiver.got == ALL)
        await until(lambda: mark.times)


@pytest.mark.usefixtures("soon")
async def test_what_a_receiver_missed_while_it_was_away_is_told_when_it_is_back() -> None:
    receiver, mark, journals = Receiver(away=True), Noted(at=NOON), Kept()
    async with sent(receiver, journals, mark) as traces:
        journals.journals[RUN_ID] = ENTRIES
        traces.take(tuple(retell(ENTRIES)))
        await until(lambda: receiver.asked)
        assert not mark.times
        receiver.away = False
        await until(lambda: receiver.got == ALL)
        await until(lambda: mark.times)


async def test_the_end_waits_no_longer_for_a_receiver_than_it_may() -> None:
    hangs = asyncio.Event()
    loop = asyncio.get_running_loop()

    def send(_: Sequence[Span]) -> bool:
        asyncio.run_coroutine_threadsafe(hangs.wait(), loop).result()
        return False

    traces = Traces(Kept(), send, Noted(), keeps=sampler({}))
    traces.take(tuple(retell(ENTRIES)))
    async with asyncio.timeout(5):
        await traces.finish(0.05)
    hangs.set()


@pytest.mark.usefixtures("soon")
async def test_what_a_crash_left_unsent_is_told_at_the_next_start_once_the_store_can_be_read() -> None:
    receiver, journals = Receiver(), Kept(ENTRIES)
    async with sent(receiver, journals, Noted(at=NOON)):
        await until(lambda: receiver.got == ALL)


async def test_of_several_agents_each_sends_the_spans_of_its_entries_and_an_heir_those_of_the_dead(
    tmp_path: Path,
) -> None:
    log, told = MemoryLog(), {"a": Receiver(), "b": Receiver()}
    async with joined(log, tmp_path, "a") as a, joined(log, tmp_path, "b") as b:

        async def tell(member: Member, name: str, *dead: str) -> list[Span]:
            committed, receiver = member.store.members.entries_by, told[name]
            traces = Traces(member.store, receiver.take, Noted(), keeps=sampler({}), member=name, committed=committed)
            await traces.tell([RUN_ID], *dead)
            await traces.finish(5)
            return receiver.got

        for number, commit in enumerate(commits_of(worked_example())):
            await committed((a, b)[number % 2].store, commit)
        assert 0 < len(await tell(a, "a")) < len(ALL)
        assert sorted([*told["a"].got, *await tell(b, "b")], key=repr) == sorted(ALL, key=repr)
        assert sorted(await tell(b, "b", "a"), key=repr) == sorted(ALL, key=repr)


def test_without_a_mark_nothing_of_the_past_is_told_and_from_then_on_all(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    first = FileMark(tmp_path, lambda: None).noted()
    assert before - MARGIN * 2 < first <= datetime.now(UTC)
    assert FileMark(tmp_path, lambda: None).noted() == first


@pytest.mark.parametrize(
    ("environ", "kept"),
    [
        ({}, 100),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, 0),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, 25),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "wrong"}, 100),
    ],
)
def test_the_share_of_traces_that_is_kept_is_that_of_the_environment(environ: dict[str, str], kept: int) -> None:
    ids = (f"{'0' * 16}{number * 2**64 // 100:016x}" for number in range(100))
    assert sum(map(sampler(environ), ids)) == kept
