"""Sending traces: each span reaches an available receiver once its run ends or rests."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_service.errors import Damaged, NewerVersion
from agent_service.run.journal import replay
from agent_service.views import spans
from agent_service.views.spans import Traces, spans_since_rest
from groundwork.service.errors import TryAgain
from groundwork.telemetry.span import Span, sampler
from tests.core.script import NOON
from tests.kit.waiting import until
from tests.projections.courses import PLAYED
from tests.projections.fakes import EVER, OTHER, Journals
from tests.projections.journals import entries_of, worked_example

ENTRIES = entries_of(worked_example())
MOMENTS = list(replay(ENTRIES))
ALL = list(spans_since_rest(ENTRIES))


@dataclass
class Receiver:
    away: bool = False
    asked: int = 0
    got: list[Span] = field(default_factory=list)

    def take(self, batch: Sequence[Span]) -> bool:
        self.asked += 1
        if not self.away:
            self.got.extend(batch)
        return not self.away


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "PAUSE_S", 0.01)
    monkeypatch.setattr(spans, "SOON_S", 0.01)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A mark after the journals of the tests."""
    made = tmp_path / ".traced"
    made.touch()
    return made


def marked(mark: Path) -> float:
    return mark.stat().st_mtime


def set_back(mark: Path) -> None:
    os.utime(mark, (NOON.timestamp(), NOON.timestamp()))


def sending_to(receiver: Receiver, journals: Journals, mark: Path) -> Traces:
    return Traces(journals, receiver.take, mark, keeps=sampler({}), content=None)


@asynccontextmanager
async def sent(traces: Traces) -> AsyncIterator[Traces]:
    task = asyncio.create_task(traces.run())
    yield traces
    task.cancel()


def test_stretches_from_rest_to_rest_are_the_whole_trace_and_nothing_is_told_twice() -> None:
    for course, play in PLAYED.items():
        entries = entries_of(play())
        seqs = [change.entry.seq for change in replay(entries) if change.rests or change.entry is entries[-1]]
        told = [span for seq in seqs for span in spans_since_rest(entries[:seq])]
        assert told == list(spans_since_rest(entries, since=EVER)), course
        assert len({span.span_id for span in told}) == len(told), course


async def test_a_run_is_sent_when_it_ends_and_not_before(mark: Path) -> None:
    receiver = Receiver()
    async with sent(sending_to(receiver, Journals(ENTRIES), mark)) as traces:
        for change in MOMENTS[:-1]:
            traces.committed(change)
        await asyncio.sleep(0.05)
        assert not receiver.asked
        traces.committed(MOMENTS[-1])
        await until(lambda: receiver.got == ALL)


async def test_what_a_receiver_missed_while_it_was_away_is_told_when_it_is_back(mark: Path) -> None:
    receiver = Receiver(away=True)
    async with sent(sending_to(receiver, Journals(ENTRIES), mark)) as traces:
        traces.committed(MOMENTS[-1])
        await until(lambda: receiver.asked)
        noted = marked(mark)
        receiver.away = False
        await until(lambda: receiver.got == ALL)
        await until(lambda: marked(mark) > noted)


async def test_a_run_that_finds_the_queue_full_during_a_catch_up_is_sent_by_the_next(
    mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "MAX_QUEUED", 0)
    monkeypatch.setattr(spans, "MAX_CATCH_UP", datetime.now(UTC) - EVER)
    receiver, journals = Receiver(), Journals(ENTRIES)
    traces = sending_to(receiver, journals, mark)
    committed, indexed = list[str](), list[str]()

    async def caught_up() -> None:
        indexed.extend(committed)

    async def changed_since(_: datetime) -> Sequence[str]:
        if not committed:
            committed.append(ENTRIES[0].run_id)
            traces.committed(MOMENTS[-1])
        return [*indexed]

    set_back(mark)
    monkeypatch.setattr(journals, "caught_up", caught_up)
    monkeypatch.setattr(journals, "changed_since", changed_since)
    await traces.finish(5)
    assert receiver.got == ALL


async def test_a_catch_up_takes_no_span_from_a_run_that_waits(mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, journals = Receiver(), Journals(ENTRIES)

    async def changed_since(_: datetime) -> Sequence[str]:
        return [ENTRIES[0].run_id]

    monkeypatch.setattr(journals, "changed_since", changed_since)
    traces = sending_to(receiver, journals, mark)
    traces.committed(MOMENTS[-1])
    await traces.finish(5)
    assert receiver.got == ALL


async def test_spans_that_cannot_be_made_are_reported_by_their_run_and_hold_up_no_other(
    mark: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError

    monkeypatch.setattr(spans, "spans_since_rest", fail)
    traces = sending_to(Receiver(), Journals(), mark)
    traces.send_again(OTHER)
    await traces.finish(5)
    assert [record.__dict__.get("run_id") for record in caplog.records] == [OTHER]


async def test_what_a_crash_left_unsent_is_told_at_the_next_start_once_the_store_can_be_read(
    mark: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spans, "MAX_CATCH_UP", datetime.now(UTC) - EVER)
    receiver, journals = Receiver(), Journals(ENTRIES)
    set_back(mark)
    journals.failure = TryAgain("the database is locked")
    async with sent(sending_to(receiver, journals, mark)):
        await asyncio.sleep(0.05)
        journals.failure = None
        await until(lambda: receiver.got == ALL)
        await until(lambda: len(caplog.records) == 2)
    assert ["is away" in record.getMessage() for record in caplog.records] == [True, False]


@pytest.mark.parametrize("unreadable", [None, Damaged(OTHER, "its state"), NewerVersion(OTHER)])
async def test_what_a_dead_agent_committed_is_told_again_and_a_journal_that_cannot_be_told_holds_up_no_other(
    mark: Path, monkeypatch: pytest.MonkeyPatch, unreadable: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spans, "MARGIN", datetime.now(UTC) - NOON)
    receiver, journals = Receiver(), Journals(ENTRIES, entries_of(worked_example(run_id=OTHER)))
    if unreadable:
        journals.unreadable[OTHER] = unreadable
    journals.journals[OTHER][2] = replace(journals.journals[OTHER][2], event="{}")
    async with sent(sending_to(receiver, journals, mark)) as traces:
        for run_id in (OTHER, ENTRIES[0].run_id):
            traces.send_again(run_id)
        await until(lambda: receiver.got == ALL)
    assert not caplog.records


async def test_the_end_waits_no_longer_for_a_receiver_than_it_may(mark: Path) -> None:
    hangs = asyncio.Event()
    loop = asyncio.get_running_loop()

    def send(_: Sequence[Span]) -> bool:
        asyncio.run_coroutine_threadsafe(hangs.wait(), loop).result()
        return False

    traces = Traces(Journals(ENTRIES), send, mark, keeps=sampler({}), content=None)
    traces.committed(MOMENTS[-1])
    async with asyncio.timeout(5):
        await traces.finish(0.05)
    hangs.set()


async def test_without_a_mark_nothing_of_the_past_is_told_and_from_then_on_all(tmp_path: Path) -> None:
    receiver, mark = Receiver(), tmp_path / "w" / ".traced"
    async with sent(sending_to(receiver, Journals(ENTRIES), mark)):
        await until(mark.exists)
        await asyncio.sleep(0.05)
    assert not receiver.asked
    assert abs(marked(mark) - datetime.now(UTC).timestamp()) < 5


def test_the_share_of_traces_that_is_kept_is_that_of_the_environment() -> None:
    ids = [f"{'0' * 16}{number * 2**64 // 100:016x}" for number in range(100)]
    assert sum(map(sampler({}), ids)) == 100
    for named, share, kept in (
        ("always_off", "", 0),
        ("traceidratio", "0.25", 25),
        ("parentbased_traceidratio", "wrong", 100),
        ("traceidratio", "nan", 100),
        ("traceidratio", "-1", 100),
    ):
        environ = {"OTEL_TRACES_SAMPLER": named, "OTEL_TRACES_SAMPLER_ARG": share}
        assert sum(map(sampler(environ), ids)) == kept, (named, share)
