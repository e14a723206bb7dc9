"""Tasks that wait for each other: what makes it impossible to do them all. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Protocol

MOST_OF_A_CYCLE = 50


class Waiting(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def depends_on(self) -> tuple[str, ...]: ...


def flaws_of(tasks: Sequence[Waiting]) -> Iterator[tuple[int, str, str]]:
    """Each flaw: the place of its task, counted from 0, the field, and what is wrong with it."""
    first = {task.id: place for place, task in reversed(list(enumerate(tasks)))}
    for place, task in enumerate(tasks):
        if first[task.id] != place:
            yield place, "id", "is taken by an earlier task"
        for wanted, times in Counter(task.depends_on).items():
            if wanted not in first:
                yield place, "depends_on", f"names {wanted}, which is no task of this continuation"
            elif times > 1:
                yield place, "depends_on", f"names {wanted} twice"
    if cycle := _cycle(tasks):
        yield first[cycle[0]], "depends_on", f"makes a cycle: {_path(cycle)} (each waits for the next)"


def _cycle(tasks: Sequence[Waiting]) -> list[str]:
    try:
        TopologicalSorter({task.id: task.depends_on for task in tasks}).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]
    return []


def _path(cycle: Sequence[str]) -> str:
    *ids, first_again = cycle
    if len(ids) > MOST_OF_A_CYCLE:
        ids = [*ids[:MOST_OF_A_CYCLE], f"({len(ids) - MOST_OF_A_CYCLE} more)"]
    return " -> ".join([*ids, first_again])
