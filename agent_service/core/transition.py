"""The result of a decision."""

from dataclasses import dataclass
from typing import TypeVar

from agent_service.core.events import Event
from agent_service.core.facts import Fact
from agent_service.core.state import RunState

F = TypeVar("F", bound=Fact)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """An event, and the facts that it led to."""

    event: Event
    facts: tuple[Fact, ...] = ()

    def all(self, kind: type[F]) -> tuple[F, ...]:
        return tuple(fact for fact in self.facts if isinstance(fact, kind))

    def first(self, kind: type[F]) -> F | None:
        return next((fact for fact in self.facts if isinstance(fact, kind)), None)


@dataclass(frozen=True, kw_only=True)
class Transition(Outcome):
    """With `ignored` set nothing changed. `refused`: the sender had no right to it."""

    state: RunState | None
    ignored: str | None = None
    refused: bool = False


class Refusal(str):
    """Why an event is ignored whose sender had no right to it."""

    __slots__ = ()
