"""A playbook for the core: `>>` feeds an event, `<<` states everything that it made the run ask for.

    run = Script()
    run >> wake() << accepts()
    run >> started() << asks("frame")
    run >> frames() << asks("plan")
    run >> plans("fetch") << requests("fetch", step=1)

Progress is not part of `<<`; what was said of the last event is in `said`. The clock stands still unless it is moved.
What can be fed is in `cues`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from agent_service.core.decide import decide
from agent_service.core.effects import AbandonCall, AskModel, CancelChild, Effect, Publish, StartChild, Transition
from agent_service.core.events import Event
from agent_service.core.state import RunState
from agent_service.core.tools.attempts import Pending
from agent_service.core.waiting import Reserve
from schemas import subjects

SAID_WITH_THE_ESCALATION = frozenset({"budget", "in_doubt"})
"""Kinds of `agent.waiting` that say once more what an `agent.escalated` says."""
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thing that a run asked for, in words: what a test states and what a failure shows."""

    what: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing changed at all, for a reason that has these words."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One event and what it led to."""

    before: RunState | None
    event: Event
    transition: Transition

    @property
    def effects(self) -> tuple[Effect, ...]:
        return self.transition.effects

    def published(self, subject: str) -> list[dict[str, Any]]:
        """The payloads that were published on `subject` or below it."""
        bodies = [e for e in self.effects if isinstance(e, Publish) and f"{e.subject}.".startswith(f"{subject}.")]
        return [json.loads(effect.body)["payload"] for effect in bodies]


class Script:
    """One run and its story so far."""

    def __init__(self) -> None:
        self.now = NOON
        self.reserve: Reserve | None = None
        """What a random story sets aside for each model call; None for a model that costs nothing."""
        self.story: list[Moment] = []

    def __rshift__(self, cue: "Cue") -> Self:
        event = cue if isinstance(cue, Event) else cue(self)
        before = self.story[-1].transition.state if self.story else None
        transition = decide(before, event)
        self.story.append(Moment(before=before, event=event, transition=transition))
        return self

    def __lshift__(self, expected: Outcome | tuple[Outcome, ...] | Ignored) -> Self:
        last = self.story[-1]
        if isinstance(expected, Ignored):
            assert last.transition.ignored is not None, f"not ignored, but it led to {self.outcomes}"
            assert expected.because in last.transition.ignored
            assert last.transition.state is last.before
            assert last.effects == ()
            return self
        assert last.transition.ignored is None
        assert self.outcomes == (expected if isinstance(expected, tuple) else (expected,))
        return self

    def __repr__(self) -> str:
        """The story in lines, so that a failure can be read."""
        return "\n".join(["a story:", *(_line(number, moment) for number, moment in enumerate(self.story))])

    @property
    def state(self) -> RunState:
        state = self.story[-1].transition.state
        assert state is not None, "the run is not known"
        return state

    @property
    def pending(self) -> Pending:
        assert self.state.pending is not None, "nothing is pending"
        return self.state.pending

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What the last event made the run ask for, without progress."""
        seen = (_outcome(effect) for effect in self.story[-1].effects)
        return tuple(outcome for outcome in seen if outcome)

    @property
    def said(self) -> list[str]:
        """The progress of the last event, as `phase: summary`."""
        return [f"{p['phase']}: {p['summary']}" for p in self.story[-1].published(subjects.PROGRESS)]

    def sent(self, subject: str) -> dict[str, Any]:
        """The one payload that the last event put on `subject`."""
        (payload,) = self.story[-1].published(subject)
        return payload

    @property
    def dedupe_keys(self) -> list[str]:
        """Of what the last event published."""
        return [effect.key for effect in self.story[-1].effects if isinstance(effect, Publish)]

    def wait(self, **duration: float) -> Self:
        """Let time pass, without any event."""
        self.now += timedelta(**duration)
        return self

    def told(self) -> tuple[str, ...]:
        """What the model is told with the question that the run asks."""
        assert self.state.asking is not None, "nothing is asked"
        return self.state.asking.told


Cue = Event | Callable[[Script], Event]
"""An event, or how to make one that fits the run as it stands."""


# What a run may ask for


def asks(phase: str) -> Outcome:
    return Outcome(f"ask the model to {phase}")


def abandons() -> Outcome:
    return Outcome("abandon the model call")


def starts_child(goal: str) -> Outcome:
    return Outcome(f"start a child: {goal}")


def cancels_child() -> Outcome:
    return Outcome("cancel a child")


def requests(tool: str, *, step: int, attempt: int = 1) -> Outcome:
    return Outcome(f"request {tool}, step {step}, attempt {attempt}")


def accepts() -> Outcome:
    return Outcome("publish agent.wake.accepted")


def announces() -> Outcome:
    return Outcome("publish agentic.start")


def completes() -> Outcome:
    return Outcome("publish agent.completed")


def escalates(ending_class: str) -> Outcome:
    return Outcome(f"publish agent.escalated: {ending_class}")


def pauses(ending_class: str) -> Outcome:
    return Outcome(f"publish agent.escalated: {ending_class}, resumable")


def fails(ending_class: str) -> Outcome:
    return Outcome(f"publish agent.failed: {ending_class}")


def cancels() -> Outcome:
    return Outcome("publish agent.cancelled: cancelled")


def asks_people(kind: str) -> Outcome:
    return Outcome(f"publish agent.waiting: {kind}")


def ignores(because: str) -> Ignored:
    return Ignored(because)


NOTHING: tuple[Outcome, ...] = ()
"""The run took notice and asks for nothing."""


def _line(number: int, moment: Moment) -> str:
    asked = "; ".join(outcome.what for outcome in map(_outcome, moment.effects) if outcome)
    led_to = f"ignored: {moment.transition.ignored}" if moment.transition.ignored else asked or "nothing to do"
    return f"  {number} {moment.event}\n     {led_to}"


def _outcome(effect: Effect) -> Outcome | None:
    match effect:
        case AskModel(phase=phase):
            return asks(phase)
        case AbandonCall():
            return abandons()
        case StartChild(wake=wake):
            return starts_child(wake.goal)
        case CancelChild():
            return cancels_child()
        case Publish(subject=subjects.PROGRESS):
            return None
        case Publish(subject=subjects.WAITING, body=body):
            kind = json.loads(body)["payload"]["kind"]
            return None if kind in SAID_WITH_THE_ESCALATION else asks_people(kind)
        case Publish(subject=subject, body=body):
            return _published(subject, json.loads(body)["payload"])


def _published(subject: str, payload: dict[str, Any]) -> Outcome:
    if subject.startswith(subjects.TOOL_REQUEST):
        return requests(payload["tool"], step=payload["step"], attempt=payload["attempt"])
    ending = f": {payload['class']}" if "class" in payload else ""
    return Outcome(f"publish {subject}{ending}{', resumable' if payload.get('resumable') else ''}")
