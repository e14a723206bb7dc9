"""A run whose first step continues, the plugins that it asks, and courses of it drawn by chance.

A course answers what is open in any order, delivers again what was delivered, lets attempts be given up and come late,
and goes on from what is stored instead of what is in memory. After each event it holds what must always hold.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from agent_service.core.announcing import outstanding
from agent_service.core.brief import Continuations
from agent_service.core.events import TimerFired
from agent_service.core.state import RunState
from agent_service.core.tools.attempts import Flight
from agent_service.core.tools.flights import due_first, flights, gatherings
from agent_service.run import journal
from schemas import subjects
from tests.core.cues import FETCH, POST, SAVE, due, frames, plans, queued, signal, started, tool
from tests.core.executor import Asked, Executor
from tests.core.graphs import RETRIEVAL, Call, Part, expected
from tests.core.script import NOON

KNOWLEDGE, LOOK = tool(RETRIEVAL, route="shelf"), tool("look", route="window")
SKILLS = (FETCH, POST, SAVE, KNOWLEDGE, LOOK)
PATIENT = Continuations(max_plugin_continuations=1000, max_plugin_total_time_ms=10**10)
LONG = NOON + timedelta(days=30)


class Gathering:
    """The run and its plugins, who see nothing but each other's messages."""

    def __init__(self, root: Part, *, continuations: Continuations = PATIENT, **limits: Any) -> None:
        granted: dict[str, Any] = {"deadline_at": LONG, "max_attempts_of_run": 10_000} | limits
        self.executor = Executor(root)
        self.run = queued(continuations=continuations, **granted) >> started(SKILLS) >> frames()
        self.feed(plans("fetch", query=""))
        self.delivered: list[Asked] = []
        """What was answered, for answering it again."""

    @property
    def state(self) -> RunState:
        return self.run.state

    @property
    def goes_on(self) -> bool:
        """Whether the step is neither finished nor handed to a person."""
        return not (self.state.final or self.state.has_finished(1))

    def feed(self, cue: Any) -> None:
        """An event, and what has to hold after any."""
        self.run >> cue
        self.executor.take(self.run.story[-1].effects)
        owed = {e.key for e in outstanding(self.state) if e.subject.startswith(subjects.TOOL_REQUEST)}
        if not self.goes_on or any(one.stopped for one in gatherings(self.state.waiting)):
            self.executor.forget(owed)
        assert owed == {asked.key for asked in self.executor.open}
        assert flights(self.state.waiting) or not self.goes_on, "it waits for nothing"

    def answer(self, asked: Asked) -> None:
        """The oldest result of a request, once more if it came already."""
        if asked in self.delivered:
            self.feed(self.executor.answer(asked, self.run.now))
            assert self.run.story[-1].transition.ignored
            return
        self.delivered.append(asked)
        self.feed(self.executor.answer(asked, self.run.now))

    @property
    def is_due(self) -> Asked | None:
        """What is given up next, unless it is answered before; None where something else comes next."""
        first = due_first(self.state.waiting)
        if isinstance(first, Flight) and first.retry_at is None:
            name = (first.pending.task, first.pending.round)
            return next(asked for asked in self.executor.open if asked.name == name)
        return None

    def give_up(self, asked: Asked) -> None:
        """The time of that attempt is over: what comes of it later is late."""
        self.executor.open.remove(asked)
        self.delivered.append(asked)
        self.feed(due)

    def time_passes(self) -> None:
        """Until something is due."""
        self.feed(due)

    def entries(self) -> Iterator[journal.Entry]:
        """The journal so far."""
        run: journal.Run | None = None
        for moment in self.run.story:
            if not moment.transition.ignored:
                commit = journal.commit_of(run, moment.event, moment.transition)
                run = journal.Run(state=commit.state, head=commit.entry.hash)
                yield commit.entry

    def reload(self) -> None:
        """The state as a store gives it back."""
        state = self.state
        items = ((growth.field, item) for growth in journal.growth_of(None, state) for item in growth.added)
        read = journal.decode_state(journal.encode_state(state), journal.encode_brief(state.brief), items)
        assert read == state
        last = self.run.story[-1]
        self.run.story[-1] = replace(last, transition=replace(last.transition, state=read))


def play(gathering: Gathering, chance: Random, *, loses: bool = False, moves: int = 10_000) -> None:
    """Until the step is over, or as many moves. `loses`: what may be repeated is sometimes not answered in time."""
    while gathering.goes_on and moves:
        _move(gathering, chance, loses=loses)
        moves -= 1


def _move(gathering: Gathering, chance: Random, *, loses: bool) -> None:
    choice, executor = chance.randrange(100), gathering.executor
    lost = gathering.is_due if loses and choice < 20 else None
    if lost and executor.can_be_lost(lost):
        gathering.give_up(lost)
    elif choice < 30 and gathering.delivered:
        gathering.answer(chance.choice(gathering.delivered))
    elif choice < 40:
        gathering.reload()
    elif choice < 45:
        gathering.feed(chance.choice((TimerFired(at=NOON), signal("raise_budget", max_steps=12))))
    elif executor.open:
        gathering.answer(chance.choice(executor.open))
    else:
        gathering.time_passes()


def check(gathering: Gathering, root: Part) -> None:
    """The whole tree was walked, each call was made once, and each plugin was told what it has to know."""
    wanted = expected(root)
    calls: dict[tuple[Call, int], list[Asked]] = {}
    for asked in gathering.executor.asked:
        calls.setdefault((asked.call, asked.payload["attempt"]), []).append(asked)
    assert {call for call, _ in calls} == set(wanted.calls)
    assert all(len(same) == 1 for same in calls.values())
    for asked in gathering.executor.asked:
        assert asked.told == wanted.told.get(asked.call, [])
    assert [record.status for record in gathering.state.completed] == [wanted.status]
