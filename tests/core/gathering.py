"""Continuations in random trees: what plugins do, what each must see, and courses of a run among them drawn by chance.

A `Part` is what a plugin does when it is asked one thing: it continues so often, each time with tasks of which each is
a part again, and then it ends. `expected` says in its own way, by walking the tree, what has to be asked for and what
the asking plugin is told. `Executor` answers each request from what its message says alone. A course answers what is
open in any order, delivers again, lets attempts be given up and come late, and goes on from what is stored.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, Literal

from hypothesis import strategies as st

from agent_service.core.announcing import outstanding
from agent_service.core.brief import Continuations
from agent_service.core.effects import Effect, Publish
from agent_service.core.events import TimerFired, ToolReturned
from agent_service.core.state import RunState
from agent_service.core.tools.attempts import Flight
from agent_service.core.tools.flights import due_first, flights, gatherings
from agent_service.run import journal
from schemas import subjects
from schemas.events import ToolResult
from tests.core.cues import FETCH, LOOK, POST, SAVE, SHELF, due, frames, plans, queued, signal, started
from tests.core.script import NOON

RETRIEVAL = "knowledge"
ONCE = "post"
"""A write that may not be repeated."""
TOOLS = ("fetch", "save", ONCE, "look")
"""What a task of `action: plugin` may ask: a read, a write that may be repeated, one that may not, another read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """It continues with each of `rounds`, and ends. Whenever it is asked it fails so often first, which may pass."""

    rounds: tuple[tuple["Task", ...], ...] = ()
    fails: int = 0
    ends: Literal["ok", "error"] = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task of a round. `tool` is the retrieval tool for a task of `action: retrieve`."""

    name: str
    tool: str = RETRIEVAL
    after: tuple[str, ...] = ()
    part: Part = Part()


@dataclass(frozen=True, slots=True)
class Call:
    """What is asked of a plugin: which part of the tree, and how many rounds of it are over."""

    path: str
    over: int


@dataclass(slots=True)
class Expected:
    """What has to come of a part: how it ends, all calls, and what each call is told of the tasks that it asked for."""

    status: Literal["ok", "error"]
    calls: list[Call] = field(default_factory=list)
    told: dict[Call, list[tuple[str, str]]] = field(default_factory=dict)


def expected(part: Part, path: str = "") -> Expected:
    """By the tree alone, with time and budget for all of it."""
    found = Expected(part.ends, [Call(path, 0)])
    gathered: list[tuple[str, str]] = []
    for number, tasks in enumerate(part.rounds, start=1):
        gathered += _round(found, tasks, f"{path}/{number}")
        found.calls.append(Call(path, number))
        found.told[found.calls[-1]] = list(gathered)
    return found


def _round(found: Expected, tasks: tuple[Task, ...], path: str) -> list[tuple[str, str]]:
    """The tasks of one round with what comes of them, in their order; `found` gains what they lead to."""
    ended: dict[str, str] = {}
    waiting = list(tasks)
    while waiting:
        task = next(task for task in waiting if ended.keys() >= set(task.after))
        waiting.remove(task)
        if any(ended[other] != "ok" for other in task.after):
            ended[task.name] = "dependency"
            continue
        of_task = expected(task.part, f"{path}.{task.name}")
        found.calls += of_task.calls
        found.told |= of_task.told
        found.told[of_task.calls[0]] = [(other, "ok") for other in _in_order(tasks, task.after)]
        ended[task.name] = of_task.status
    return [(task.name, ended[task.name]) for task in tasks]


def _in_order(tasks: tuple[Task, ...], names: tuple[str, ...]) -> list[str]:
    return [task.name for task in tasks if task.name in names]


def part_of(root: Part, path: str) -> Part:
    """The part at that place of the tree."""
    part = root
    for place in path.split("/")[1:]:
        number, _, name = place.partition(".")
        part = next(task.part for task in part.rounds[int(number) - 1] if task.name == name)
    return part


def continuations(part: Part) -> int:
    """How often the part and all its tasks continue, if all of them are asked."""
    return len(part.rounds) + sum(continuations(task.part) for tasks in part.rounds for task in tasks)


def parts(part: Part) -> Iterator[Part]:
    """It and all of its tasks."""
    yield part
    for tasks in part.rounds:
        for task in tasks:
            yield from parts(task.part)


def wire(tasks: tuple[Task, ...], path: str) -> dict[str, Any]:
    """A round as its plugin says it: the JSON form of a continuation. `path` is that of the round."""
    (first, *others) = tasks
    if first == Task(name="task-1", part=first.part) and not others:
        return {"action": "retrieve", "query": f"{path}.{first.name}"}
    return {"action": "multi-step", "tasks": [_task(task, f"{path}.{task.name}") for task in tasks]}


def _task(task: Task, path: str) -> dict[str, Any]:
    asked: dict[str, Any] = {"action": "retrieve", "query": path}
    if task.tool != RETRIEVAL:
        asked = {"action": "plugin", "plugin": task.tool, "input": {"query": path}}
    return {"id": task.name, **asked, "depends_on": list(task.after) or "none"}


# Random trees


@dataclass(frozen=True, slots=True, kw_only=True)
class Chances:
    """How often something is so in a random tree, of 100."""

    fails: int = 10
    ends_badly: int = 10
    depends: int = 30
    continues: int = 10


def a_graph(chance: Random, size: int, odds: Chances, *, depth: int = 1) -> tuple[Task, ...]:
    """Tasks of one round, in any order: a task may stand before what it depends on."""
    if size == 1:
        return (Task(name="task-1", part=a_part(chance, odds, depth=depth)),)
    names = [f"t{number}" for number in range(1, size + 1)]
    tasks = [_a_task(chance, name, names[:place], odds, depth=depth) for place, name in enumerate(names)]
    chance.shuffle(tasks)
    return tuple(tasks)


def _a_task(chance: Random, name: str, before: list[str], odds: Chances, *, depth: int) -> Task:
    likely = odds.depends / (1 + len(before) / 4)
    after = tuple(other for other in before if chance.randrange(100) < likely)
    tool, part = chance.choice((RETRIEVAL, *TOOLS)), a_part(chance, odds, depth=depth)
    return Task(name=name, tool=tool, after=after, part=replace(part, fails=0) if tool == ONCE else part)


def a_part(chance: Random, odds: Chances, *, depth: int) -> Part:
    """What one task does; `depth`: how many plugins may still continue below each other."""
    rounds: tuple[tuple[Task, ...], ...] = ()
    if depth and chance.randrange(100) < odds.continues:
        sizes = [chance.randint(1, 3) for _ in range(chance.randint(1, 2))]
        rounds = tuple(a_graph(chance, size, odds, depth=depth - 1) for size in sizes)
    fails = chance.randint(1, 2) if chance.randrange(100) < odds.fails else 0
    return Part(rounds=rounds, fails=fails, ends="error" if chance.randrange(100) < odds.ends_badly else "ok")


def a_tree(chance: Random, sizes: tuple[int, ...], odds: Chances) -> Part:
    """What the tool of a step does: a round of each size, then it ends well."""
    return Part(rounds=tuple(a_graph(chance, size, odds) for size in sizes))


CHANCES = st.integers(0, 2**32).map(Random)
TREES = st.builds(
    a_tree,
    CHANCES,
    st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple) | st.integers(1, 50).map(lambda size: (size,)),
    st.builds(Chances, fails=st.sampled_from([0, 20]), ends_badly=st.sampled_from([0, 20]), depends=st.integers(0, 60)),
)


# Plugins

KEY = re.compile(
    r"agentic:run:(?P<run>[^:]+):step:(?P<step>\d+)(?::task:(?P<task>[a-z0-9_.-]+):(?P<round>\d+))?"
    r":request(?::attempt:(?P<attempt>\d+))?"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it left."""

    key: str
    payload: dict[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        told: dict[str, Any] = self.payload["tool_payload"]
        return told

    @property
    def name(self) -> tuple[str, int]:
        """Task and round, as a run keeps them of its step's own request and of others."""
        return self.payload.get("task", ""), self.payload.get("round", 0)

    @property
    def evidence(self) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = self.arguments.get("evidence", [])
        return told

    @property
    def call(self) -> Call:
        """Which part of the tree is asked, after how many of its rounds: what a plugin sees of it."""
        again = self.payload.get("task", "").rpartition(".")[2] == "again"
        over = len({item["round"] for item in self.evidence}) if again else 0
        return Call(self.arguments["query"], over)

    @property
    def told(self) -> list[tuple[str, str]]:
        """The tasks that it is told of, and what came of each: ok, or the class of the error."""
        return [
            (_last(item["task"]), item["status"] if item["status"] == "ok" else _class(item)) for item in self.evidence
        ]


def _last(task: str) -> str:
    return task.rpartition(".")[2]


def _class(item: dict[str, Any]) -> str:
    return "dependency" if item["error"]["class"] == "dependency" else "error"


class Executor:
    """Plays every plugin of a tree. `open`: what is asked and not answered, the oldest first."""

    def __init__(self, root: Part) -> None:
        self.asked: list[Asked] = []
        self.open: list[Asked] = []
        self.most_open = 0
        self._root = root

    def take(self, effects: Iterable[Effect]) -> None:
        """Note the requests among what a run said. The key says the same as the message."""
        for effect in effects:
            if isinstance(effect, Publish) and effect.subject.startswith(subjects.TOOL_REQUEST):
                asked = Asked(effect.key, json.loads(effect.body)["payload"])
                _same(asked)
                self.asked.append(asked)
                self.open.append(asked)
        self.most_open = max(self.most_open, len(self.open))

    def forget(self, owed: Collection[str]) -> None:
        """Whatever is not waited for any more."""
        self.open = [asked for asked in self.open if asked.key in owed]

    def can_be_lost(self, asked: Asked) -> bool:
        """Whether it is asked for once more, and then answered."""
        first = asked.payload["attempt"] == 1 and not part_of(self._root, asked.call.path).fails
        return first and asked.payload["tool"] != ONCE

    def answer(self, asked: Asked, at: datetime) -> ToolReturned:
        """What comes of a request, however often it is asked for."""
        if asked in self.open:
            self.open.remove(asked)
        return ToolReturned(at=at, result=ToolResult.model_validate(self._result(asked, at)))

    def _result(self, asked: Asked, at: datetime) -> dict[str, Any]:
        echoed = ("run_id", "step", "tool", "attempt", "task", "round")
        names: dict[str, Any] = {name: asked.payload[name] for name in echoed if name in asked.payload}
        return {**names, "completed_at": at, **self._outcome(asked)}

    def _outcome(self, asked: Asked) -> dict[str, Any]:
        call = asked.call
        part = part_of(self._root, call.path)
        if asked.payload["attempt"] <= part.fails:
            return {"status": "error", "error": {"class": "upstream", "message": "not now", "retryable": True}}
        if call.over < len(part.rounds):
            path = f"{call.path}/{call.over + 1}"
            return {"status": "continuation", "result": {"continuation": wire(part.rounds[call.over], path)}}
        if part.ends == "error":
            return {"status": "error", "error": {"class": "no_such_thing", "message": "it is not there"}}
        return {"status": "ok", "result": {"summary": f"all of {call.path or 'the step'}"}}


def _same(asked: Asked) -> None:
    named = KEY.fullmatch(asked.key)
    assert named, asked.key
    says = asked.payload
    assert (named["run"], int(named["step"]), named["task"]) == (says["run_id"], says["step"], says.get("task"))
    assert (int(named["attempt"] or 1), named["round"] and int(named["round"])) == (says["attempt"], says.get("round"))


# Courses

SKILLS = (FETCH, POST, SAVE, SHELF, LOOK)
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
