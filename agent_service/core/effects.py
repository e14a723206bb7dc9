"""What is to be done after a commit, under ids that stay the same when it is done again.

Effects and timers are not stored: they follow from the state (`announcing`, `due_at`) and the journal.
"""

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from agent_service.core.facts import Fact
from agent_service.core.phases import Phase
from agent_service.core.state import RunState
from schemas.events import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Put a message on the bus. `key` is its `Nats-Msg-Id`; a rebuildable one may be lost, the journal has it."""

    subject: str
    key: str
    body: bytes
    rebuildable: bool = False
    about: str = field(default="", repr=False)
    proves: tuple[str, ...] = field(default=(), repr=False)
    """The request whose capability it carries (`keys.proven`)."""
    changes: bool = field(default=False, repr=False)
    """It asks for a change, so it says who asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """Make model call `call`; its reply is the next event. Moot once the state asks for another call."""

    call: int
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonCall:
    call: int


Effect = Publish | AskModel | AbandonCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """With `ignored` set nothing changed. `refused`: the sender had no right to it."""

    state: RunState | None
    facts: tuple[Fact, ...] = ()
    effects: tuple[Effect, ...] = ()
    ignored: str | None = None
    refused: bool = False


class Refusal(str):
    __slots__ = ()


def publish(subject: str, payload: BaseModel, key: str, **how: Any) -> Publish:
    envelope: Envelope[Any] = Envelope(type=subject, payload=payload, dedupe_key=key)
    return Publish(subject=subject, key=key, body=envelope.body(), **how)


def tell(subject: str, payload: dict[str, Any], key: str) -> Publish:
    """Tells people of a run. The fields are in the order of the subject's model, which does not check them here."""
    body = to_json({"type": subject, "payload": payload, "dedupe_key": key})
    return Publish(subject=subject, key=key, body=body, rebuildable=True)
