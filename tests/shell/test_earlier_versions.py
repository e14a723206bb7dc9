"""Stores that earlier versions left when they were killed: what stands in them is read, and goes on under this one.

`samples/stores/` holds one for each version: runs in every status, in each kind of waiting, struck between commit and
publish, in the middle of a model call, and before an acknowledgement.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_service.background import Background
from agent_service.core.decide import decide
from agent_service.core.effects import AskModel, Publish
from agent_service.core.events import SignalReceived
from agent_service.core.phases import Phase
from agent_service.core.state import RunState
from agent_service.core.waiting import Ended, ForModel, ForPerson, ForTool, ModelRetry, Status, ToolRetry
from agent_service.journal import flaw_in_chain, rehearse
from agent_service.lines import Wanted
from agent_service.store.sql.database import FILE
from agent_service.store.sqlite import SqliteStore
from schemas import subjects
from schemas.events import Constraints, Signal
from tests.samples import samples
from tests.shell.world import APPEND, World

EARLIER = samples("every_state.sql")
GOES_ON = Constraints(max_steps=20, max_tokens=100_000, max_cost_usd=100.0)


@pytest.fixture(params=EARLIER, ids=lambda path: path.parent.name)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.executescript(request.param.read_text())
    async with SqliteStore.open(tmp_path) as opened:
        yield opened


async def states(store: SqliteStore) -> dict[str, RunState]:
    runs = [await store.load(line.run_id) for line in await store.runs(limit=1000)]
    return {run.state.run_id: run.state for run in runs if run}


async def test_an_earlier_store_has_runs_in_every_status_and_in_each_kind_of_waiting(store: SqliteStore) -> None:
    waits = [state.waiting for state in (await states(store)).values()]
    assert {waiting.status for waiting in waits} == set(Status)
    held = {type(waiting.held) for waiting in waits if isinstance(waiting, ForPerson)}
    assert held == {ForModel, ModelRetry, ForTool, ToolRetry}
    assert {type(waiting) for waiting in waits} >= held
    assert any(isinstance(waiting, ForModel) and waiting.reserve for waiting in waits)


async def test_a_run_stands_where_its_journal_says(store: SqliteStore) -> None:
    for run_id, state in (await states(store)).items():
        entries = await store.entries(run_id)
        assert flaw_in_chain(entries) is None
        *_, (_, transition) = rehearse(entries)
        assert transition.state is not None
        assert as_kept_then(replace(transition.state, brief=state.brief)) == replace(state, notes=())


def as_kept_then(state: RunState) -> RunState:
    """The state without what earlier versions did not keep of people, of writes, and of a run that rests for a person.

    Without its notes too: they are kept in the words of the version that made them. Hashes had half as many digits.
    """
    steps = (replace(one, sent=None, call=one.call[:16], outcome=one.outcome[:16]) for one in state.completed)
    state = replace(state, shown=0, notes=(), completed=tuple(steps))
    match state.waiting:
        case ForModel(asking=asking) | ModelRetry(asking=asking) as waiting:
            told = replace(asking, feedback=asking.told, flaws=())
            return replace(state, heard=0, waiting=replace(waiting, asking=told))
        case Ended() as ended:
            return replace(state, heard=0, waiting=replace(ended, held=None, came=()))
        case ForPerson() as paused:
            return replace(state, heard=0, waiting=replace(paused, since=None))
    return replace(state, heard=0)


async def test_an_answer_reopens_an_escalated_run_and_doubts_a_write_of_which_nobody_knows(store: SqliteStore) -> None:
    world = World(store=store)
    escalated = [state for state in (await states(store)).values() if state.status is Status.ESCALATED]
    doubtful = [of_unknown_outcome(state) for state in escalated]
    for state in (*escalated, *doubtful):
        more = GOES_ON.model_copy(update={"max_reframes": 9, "deadline_at": world.clock.now().replace(hour=23)})
        said = Signal(run_id=state.run_id, signal_id="a", kind="answer", message="go on", constraints=more)
        event = SignalReceived(at=world.clock.now(), signal=said, by="os user ann", strict=True)
        transition = decide(state, event)
        assert transition.state is not None
        assert transition.ignored is None
        published = [effect.subject for effect in transition.effects if isinstance(effect, Publish)]
        assert published[:1] == [subjects.REOPENED]
        assert transition.effects[-1] == AskModel(call=state.calls + 1, phase=Phase.REFLECT)
        doubts = [doubt.step for doubt in transition.state.doubts]
        assert doubts == ([state.step] if state.ending_class == "in_doubt" else [])


def of_unknown_outcome(state: RunState) -> RunState:
    """As an earlier version stored a run with a write that may not be repeated and that nobody answered for."""
    assert isinstance(state.waiting, Ended)
    waiting = replace(state.waiting, stop=replace(state.waiting.stop, ending_class="in_doubt"))
    return replace(state, waiting=waiting, brief=replace(state.brief, skills=(APPEND,)))


async def test_every_open_run_finishes_and_none_that_has_ended_is_touched(store: SqliteStore) -> None:
    before = await states(store)
    world = World(store=store)
    await go_on(world)
    for minutes in (20, 20, 15, 10):  # what was put off, what waits for a person, and what came of that
        world.clock.advance(60 * minutes)
        await resume_paused(world)
        await world.fire_timers()
        await world.until_quiet()
    after = await states(store)
    assert {run_id: state.status for run_id, state in after.items() if not state.final} == {}
    assert {run_id: state for run_id, state in after.items() if before[run_id].final} == {
        run_id: state for run_id, state in before.items() if state.final
    }
    assert [state.reason for state in after.values() if state.status is not Status.DONE] == [
        state.reason for state in before.values() if state.final and state.status is not Status.DONE
    ]
    assert set(world.gateway.executed.values()) == {1}
    for run_id in after:
        assert flaw_in_chain(await store.entries(run_id)) is None


async def go_on(world: World) -> None:
    """A new process over the store: it resumes what was left, and says again what a bus that forgot all must know."""
    async with asyncio.TaskGroup() as group:
        recovery, now = world.recovery(Background(group)), world.clock.now()
        await recovery.resume_all()
        await recovery.say_again(now, now)
    await world.until_quiet()


async def resume_paused(world: World) -> None:
    paused = await world.store.runs(Wanted(statuses=frozenset({Status.PAUSED})), limit=100)
    for line in paused:
        more = GOES_ON.model_copy(update={"deadline_at": world.clock.now().replace(hour=23)})
        signal = Signal(run_id=line.run_id, signal_id="more", kind="raise_budget", constraints=more)
        await world.turns.take(line.run_id, SignalReceived(at=world.clock.now(), signal=signal))
