"""One run as it was seen: its journal, what the agent said, what the gateway was asked, and what happened. Pure."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from agent_service.core.events import CancelRequested, ModelReplied
from agent_service.core.model import thinking
from agent_service.core.noted import MemoryNote
from agent_service.core.state import RunState
from agent_service.core.waiting import Approval, Question, Sleeping, Status
from agent_service.run.changes import ChangeRecord, retell
from agent_service.run.journal import Entry
from schemas import subjects
from schemas.catalog import ToolOffer
from schemas.continuation import AGAIN
from schemas.events import Envelope, ToolRequest
from schemas.values import dataclass

Happening = Literal[
    "approval",
    "bad_continuation",
    "cancel_while_pending",
    "claim_refused",
    "compaction",
    "continuation",
    "done_refused",
    "late_result",
    "model_wait",
    "outrun",
    "parallel_reads",
    "parallel_tasks",
    "pause",
    "question",
    "reframe",
    "reopened",
    "repair",
    "retry",
    "step_budget",
    "task_failed",
    "unticked",
    "verification_refused",
    "wait",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    at: datetime
    subject: str
    key: str
    body: bytes

    @property
    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.body)["payload"]
        return payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    at: datetime
    route: str
    asked: ToolRequest

    def __str__(self) -> str:
        asked = self.asked
        task = f" {asked.task} of round {asked.round}" if asked.task else ""
        return f"step {asked.step}{task} attempt {asked.attempt} ({asked.tool} {asked.tool_command})"

    @property
    def name(self) -> tuple[int, str, int]:
        return self.asked.step, self.asked.task or "", self.asked.round or 0

    @property
    def asks_again(self) -> bool:
        return (self.asked.task or "").rpartition(".")[2] == AGAIN


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One run, as it was seen. `broken`: why it could not be played to its end."""

    goal: str
    offers: tuple[ToolOffer, ...]
    state: RunState | None
    entries: Sequence[Entry]
    said: Sequence[Said]
    artifacts: frozenset[str]
    broken: str = ""
    children: tuple["Observed", ...] = ()

    @cached_property
    def changes(self) -> tuple[ChangeRecord, ...]:
        """Up to the first entry that cannot follow."""
        changes: list[ChangeRecord] = []
        with suppress(ValueError):
            changes.extend(retell(self.entries))
        return tuple(changes)

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        return tuple(self._requests())

    @property
    def tree(self) -> Iterator["Observed"]:
        yield self
        for child in self.children:
            yield from child.tree

    @property
    def tasks(self) -> int:
        return len({request.name for request in self.requests if request.asked.task and not request.asks_again})

    @property
    def rounds(self) -> int:
        return len({request.name for request in self.requests if request.asks_again})

    @property
    def endings(self) -> list[Said]:
        return [said for said in self.said if said.subject in subjects.ENDINGS]

    def _requests(self) -> Iterator[Request]:
        for said in self.said:
            if said.subject.startswith(f"{subjects.TOOL_REQUEST}."):
                asked = Envelope[ToolRequest].model_validate_json(said.body).payload
                yield Request(at=said.at, route=said.subject.rsplit(".", 1)[1], asked=asked)


def happenings(seen: Observed) -> dict[Happening, int]:
    """What happened, each with its first entry's number: in the run, else in its children."""
    found: dict[Happening, int] = {}
    for change in (change for run in seen.tree for change in run.changes):
        for happening, is_one in _SIGNS.items():
            if happening not in found and is_one(change):
                found[happening] = change.entry.seq
    return found


def _compaction(change: ChangeRecord) -> bool:
    return _memory(change.after) != (_memory(change.before) if change.before else [])


def _memory(state: RunState) -> list[MemoryNote]:
    return [note for note in state.notes if isinstance(note, MemoryNote)]


def _cancel_while_pending(change: ChangeRecord) -> bool:
    return isinstance(change.event, CancelRequested) and change.before is not None and change.before.pending is not None


def _outrun(change: ChangeRecord) -> bool:
    event, before = change.event, change.before
    return before is not None and isinstance(event, ModelReplied) and thinking.outrun(before, event)


def _unticked(change: ChangeRecord) -> bool:
    before = {item.id for item in change.before.done_items if item.done} if change.before else set()
    return any(item.id in before and not item.done for item in change.after.done_items)


def _bad_continuation(change: ChangeRecord) -> bool:
    result, evidence = change.after.last_result, change.after.evidence
    told = [result.output] if result else []
    return any(output.get("class") == "bad_continuation" for output in (*told, *(one.output for one in evidence)))


_SIGNS: dict[Happening, Callable[[ChangeRecord], bool]] = {
    "bad_continuation": _bad_continuation,
    "continuation": lambda change: bool(change.after.graphs),
    "parallel_tasks": lambda change: sum(bool(pending.task) for pending in change.after.pendings) > 1,
    "step_budget": lambda change: any(record.status == "budget" for record in change.after.completed),
    "task_failed": lambda change: any(evidence.status == "error" for evidence in change.after.evidence),
    "approval": lambda change: isinstance(change.after.ask, Approval),
    "cancel_while_pending": _cancel_while_pending,
    "compaction": _compaction,
    "done_refused": lambda change: change.after.refused_done > 0,
    "claim_refused": lambda change: bool(change.after.refusals),
    "late_result": lambda change: len(change.after.late) > (len(change.before.late) if change.before else 0),
    "model_wait": lambda change: getattr(change.event, "remedy", "") == "try_again",
    "outrun": _outrun,
    "parallel_reads": lambda change: len({pending.step for pending in change.after.pendings}) > 1,
    "pause": lambda change: change.after.status is Status.PAUSED,
    "question": lambda change: isinstance(change.after.ask, Question),
    "reframe": lambda change: change.after.reframes > 0,
    "reopened": lambda change: change.after.reopened > 0,
    "repair": lambda change: change.after.asking is not None and change.after.asking.repairs > 0,
    "retry": lambda change: any(pending.attempt > 1 for pending in change.after.pendings),
    "unticked": _unticked,
    "verification_refused": lambda change: change.after.unverified > 0,
    "wait": lambda change: isinstance(change.after.waiting, Sleeping),
}
