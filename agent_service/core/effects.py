"""What is to be done after a commit, in the imperative, under ids that stay the same when it is done again.

Effects are not stored: after a crash they follow from the state (`announcing`) and from the journal, decided again.
Timers are no effect: the state's `due_at` is stored with the state, so that a step costs no message for it.
"""

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from agent_service.core.events import WakeAccepted
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
    """The run that it is about, where that is another."""
    proves: tuple[str, ...] = field(default=(), repr=False)
    """Of which request it is to carry the capability (`keys.proven`)."""
    changes: bool = field(default=False, repr=False)
    """It asks for something to be changed: whoever does so goes by who says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """Make model call `call`; its reply is the next event. Moot once the state asks for another call."""

    call: int
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonCall:
    """Stop waiting for model call `call`: the run has ended."""

    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartChild:
    """Accept a run that is a step of this one. One that is known already goes on, or tells its end again."""

    wake: WakeAccepted


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelChild:
    """Cancel a run that was a step of this one, and is waited for no more. One that has ended is left alone."""

    run_id: str
    reason: str


Effect = Publish | AskModel | AbandonCall | StartChild | CancelChild


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What one event led to. With `ignored` set nothing changed: it says why, for the log and the counters.

    `refused`: and whoever sent it had no right to.
    """

    state: RunState | None
    effects: tuple[Effect, ...] = ()
    ignored: str | None = None
    refused: bool = False


class Refusal(str):
    """Why an event is ignored that its sender had no right to send."""

    __slots__ = ()


def publish(subject: str, payload: BaseModel, key: str, **how: Any) -> Publish:
    envelope: Envelope[Any] = Envelope(type=subject, payload=payload, dedupe_key=key)
    return Publish(subject=subject, key=key, body=envelope.body(), **how)


def tell(subject: str, payload: dict[str, Any], key: str) -> Publish:
    """The effect that tells people of a run, under the fields of the subject's model in their order.

    They are ours, so no model checks them: there are four such messages in each step.
    """
    body = to_json({"type": subject, "payload": payload, "dedupe_key": key})
    return Publish(subject=subject, key=key, body=body, rebuildable=True)
