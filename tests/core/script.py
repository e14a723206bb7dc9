"""A run and its story: `>>` feeds an event, `outcomes` lists its consequences.

    run = Script() >> wake() >> started() >> frames()
    assert run.outcomes == ("ask plan",)

The clock stands still unless it is moved. `cues` makes the events, `words` reads them from text.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Self

from pydantic_core import to_jsonable_python

from agent_service.core.decide import decide
from agent_service.core.events import Event, Transition, WakeAccepted
from agent_service.core.limits import awaited_children, withdrawn_children
from agent_service.core.state import RunState
from agent_service.core.waiting import CallReserve, OpenCall, Pending
from agent_service.run import messages
from agent_service.run.children import BadCall, result_of, wake
from agent_service.run.journal import Commit, Run, commit_of
from agent_service.run.messages import OutgoingMessage
from agent_service.run.turn import asks_the_model
from agent_service.sentences import Text
from schemas import subjects

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SAID_WITH_THE_ESCALATION = frozenset({"budget", "in_doubt"})
"""Kinds of `agent.waiting` that repeat an `agent.escalated`."""
USUAL = (("url", "https://example.org"),)
"""The arguments that a request has if its test names none: they are not printed."""
LONGEST = 240


@dataclass(frozen=True, kw_only=True)
class ChangeRecord:
    before: RunState | None
    event: Event
    transition: Transition

    @cached_property
    def messages(self) -> tuple[OutgoingMessage, ...]:
        state, ignored = self.transition.state, self.transition.ignored
        return () if ignored or state is None else tuple(messages.of_entry(state, self.transition, state.version))

    @cached_property
    def payloads(self) -> list[tuple[str, dict[str, Any]]]:
        return [(one.subject, to_jsonable_python(one.payload)) for one in self.messages]

    @property
    def asks(self) -> OpenCall | None:
        state = self.transition.state
        return state.active_call if state and not self.transition.ignored and asks_the_model(self.transition) else None

    def published(self, subject: str) -> list[dict[str, Any]]:
        """Payloads on `subject` or below it."""
        return [payload for name, payload in self.payloads if f"{name}.".startswith(f"{subject}.")]


class Script:
    def __init__(self) -> None:
        self.now = NOON
        self.reserve: CallReserve | None = None
        """Reserve of each model call in a random story; None for a free model."""
        self.story: list[ChangeRecord] = []

    def __rshift__(self, cue: "Cue") -> Self:
        event = self.event(cue)
        before = self.story[-1].transition.state if self.story else None
        self.story.append(ChangeRecord(before=before, event=event, transition=decide(before, event)))
        return self

    def event(self, cue: "Cue") -> Event:
        while not isinstance(cue, Event):
            cue = cue(self)
        return cue

    def __iter__(self) -> Iterator[ChangeRecord]:
        return iter(self.story)

    def __repr__(self) -> str:
        lines = (
            f"  {number} {change.event}\n     {'; '.join(led_to(change))}" for number, change in enumerate(self.story)
        )
        return "\n".join(["a story:", *lines])

    @property
    def state(self) -> RunState:
        state = self.story[-1].transition.state
        assert state is not None, "the run is not known"
        return state

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Consequences of the last event, without progress."""
        return tuple(asked_for(self.story[-1]))

    def wait(self, **duration: float) -> Self:
        self.now += timedelta(**duration)
        return self

    def branch(self) -> "Script":
        other = Script()
        other.story, other.now, other.reserve = list(self.story), self.now, self.reserve
        return other


def commits_of(story: Iterable[ChangeRecord]) -> list[Commit]:
    commits: list[Commit] = []
    run: Run | None = None
    for change in story:
        if not change.transition.ignored:
            commits.append(commit_of(run, change.transition))
            run = Run(state=commits[-1].state, head=commits[-1].entry.hash)
    return commits


Cue = Event | Callable[[Script], "Cue"]
"""An event, or how to make one that fits the run as it stands."""


def led_to(change: ChangeRecord) -> list[str]:
    """Consequences of a moment, in lines; else what the run waits for."""
    if change.transition.ignored:
        assert change.transition.state is change.before
        how = "refused" if change.transition.refused else "ignored"
        return [f"{how}: {change.transition.ignored}"]
    lines = [*asked_for(change)]
    lines += _done_by_the_executor(change)
    state = change.transition.state
    assert state is not None
    if asked := change.asks:
        lines += [f"told: {_short(text)}" for text in asked.remarks]
    return lines or [f"rests: {rest_of(state)}"]


def rest_of(state: RunState) -> str:
    until = f" until {instant(state.due_at)}" if state.due_at else ""
    asked = f" for the model to {state.open_call.phase}" if state.open_call else ""
    sent = ", ".join(named(p.action.tool, p.step, p.task, p.round, p.attempt) for p in state.pendings)
    return f"{state.status}{asked}{f' for {sent}' if sent else ''}{until}"


def named(tool: str, step: int, task: str, round_: int, attempt: int) -> str:
    name = f"{tool} {step}" if not task else f"{tool} {step} {task}:{round_}"
    return name if attempt == 1 else f"{name} attempt {attempt}"


def instant(at: datetime) -> str:
    seconds = (at - NOON).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"+{seconds / size:g}{unit}"
    return f"+{seconds:g}s"


def asked_for(change: ChangeRecord) -> Iterator[str]:
    for subject, payload in change.payloads:
        if subject != subjects.PROGRESS:
            yield from _published(subject, payload)
    if asked := change.asks:
        yield f"ask {asked.phase}"


def asked_for_anew(change: ChangeRecord) -> list[Pending]:
    known = awaited_children(change.before) if change.before else ()
    return (
        [pending for pending in awaited_children(change.transition.state) if pending not in known]
        if change.transition.state
        else []
    )


def _done_by_the_executor(change: ChangeRecord) -> Iterator[str]:
    """Effects of the moment on the children's executor."""
    before, state = change.before, change.transition.state
    assert state is not None
    for pending in asked_for_anew(change):
        try:
            yield f"start {_child(wake(state, pending, at=change.event.at))}"
        except BadCall as error:
            yield f"refuse: {error}"
    yield from (
        "cancel a child" for one in withdrawn_children(state) if before is None or one not in withdrawn_children(before)
    )
    if before and not before.final and (told := result_of(state)):
        yield f"tell the parent: {told.status}{f' {told.error.error_class}' if told.error else ''}"


def _child(wake: WakeAccepted) -> str:
    brief, most, parent = wake.brief, wake.brief.limits, wake.brief.parent
    assert parent is not None
    given = f"{most.max_steps} steps, {most.max_tokens} tokens, {most.max_cost_usd and round(most.max_cost_usd, 6)} USD"
    context = {name: value for name, value in brief.context.items() if name != "evidence"}
    came = brief.context.get("evidence") or []
    told = f", told {', '.join(_came(one) for one in came)}" if isinstance(came, list) and came else ""  # type: ignore[arg-type]
    place = named("step", parent.step, parent.task, parent.round, parent.attempt)
    return (
        f"{brief.goal!r} at depth {brief.depth} as {place}: {given}"
        f"{f', context {compact(context)}' if context else ''}{told}{', untrusted' if brief.untrusted else ''}"
    )


def _published(subject: str, payload: dict[str, Any]) -> Iterator[str]:
    if subject.startswith(subjects.TOOL_REQUEST):
        yield _request(payload)
    elif subject == subjects.WAITING:
        if payload["kind"] not in SAID_WITH_THE_ESCALATION:
            yield f"wait for {_petition(payload)}"
    elif subject == subjects.REOPENED:
        yield f"reopened by {payload['by']} after {payload['answer_to']}: {payload['message']}"
    elif "class" in payload:
        word = "paused" if payload.get("resumable") else subject.rpartition(".")[2]
        yield f"{word} {payload['class']}: {_short(payload['reason'])}"
    elif subject == subjects.COMPLETED:
        yield f"completed: {_short(payload['outcome'])}"
    else:
        yield f"publish {subject}"


def _request(payload: dict[str, Any]) -> str:
    name = named(payload["tool"], payload["step"], payload.get("task", ""), payload.get("round", 0), payload["attempt"])
    command = "" if payload["tool_command"] == "handle" else f" command={payload['tool_command']}"
    given = {key: value for key, value in payload["tool_payload"].items() if key != "evidence"}
    given = {key: value for key, value in given.items() if (key, value) not in USUAL}
    came = [f"{one['task']}:{one['round']} {_came(one)}" for one in payload["tool_payload"].get("evidence") or ()]
    told = f" told {', '.join(came)}" if came else ""
    marked = ", untrusted" if payload.get("untrusted") else ""
    return f"request {name}{command}{told}{f' {compact(given)}' if given else ''}{marked}"


def _came(evidence: dict[str, Any]) -> str:
    return "ok" if evidence["status"] == "ok" else str((evidence.get("error") or {}).get("class"))


def _petition(payload: dict[str, Any]) -> str:
    until = f" until {instant(datetime.fromisoformat(payload['expires_at']))}" if payload.get("expires_at") else ""
    if payload["kind"] == "question":
        choices = f" {'/'.join(payload['choices'])}" if payload["choices"] else ""
        return f"an answer to {payload['question']!r}{choices}{until}: {_short(payload['reason'])}"
    task = f" {payload['task']}:{payload['round']}" if payload.get("task") else ""
    what = f"{payload['tool']} {payload['step']}{task}" if payload.get("tool") else "a framing"
    return f"approval of {what}{until}: {_short(payload['reason'])}"


def compact(value: Any) -> str:
    return _short(json.dumps(value, ensure_ascii=False))


def _short(text: Text) -> str:
    line = str(text).replace("\n", "\\n")
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}… ({len(line)})"
