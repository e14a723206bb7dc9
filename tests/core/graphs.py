"""What plugins do in a random story of continuations, and what each of them must see: a tree of tasks, said once.

A `Part` is what a plugin does when it is asked one thing: it continues so often, each time with tasks of which each is
a part again, and then it ends. `expected` says in its own way, by walking the tree, what has to be asked for and what
the asking plugin is told. Nothing here knows of the core.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

from hypothesis import strategies as st

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
