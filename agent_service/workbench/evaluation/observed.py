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
from agent_service.core.tools.in_flight import graphs
from agent_service.core.waiting import Approval, Question, Sleeping, Status
from agent_service.run.journal import Entry
from agent_service.run.moments import Moment, retell
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
    def moments(self) -> tuple[Moment, ...]:
        """Up to the first entry that cannot follow."""
        moments: list[Moment] = []
        with suppress(ValueError):
            moments.extend(retell(self.entries))
        return tuple(moments)

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
    for moment in (moment for run in seen.tree for moment in run.moments):
        for happening, is_one in _SIGNS.items():
            if happening not in found and is_one(moment):
                found[happening] = moment.entry.seq
    return found


def _compaction(moment: Moment) -> bool:
    return _memory(moment.after) != (_memory(moment.before) if moment.before else [])


def _memory(state: RunState) -> list[MemoryNote]:
    return [note for note in state.notes if isinstance(note, MemoryNote)]


def _cancel_while_pending(moment: Moment) -> bool:
    return isinstance(moment.event, CancelRequested) and moment.before is not None and moment.before.pending is not None


def _outrun(moment: Moment) -> bool:
    event, before = moment.event, moment.before
    return before is not None and isinstance(event, ModelReplied) and thinking.outrun(before, event)


def _unticked(moment: Moment) -> bool:
    before = {item.id for item in moment.before.done_items if item.done} if moment.before else set()
    return any(item.id in before and not item.done for item in moment.after.done_items)


def _bad_continuation(moment: Moment) -> bool:
    result, evidence = moment.after.last_result, moment.after.evidence
    told = [result.output] if result else []
    return any(output.get("class") == "bad_continuation" for output in (*told, *(one.output for one in evidence)))


_SIGNS: dict[Happening, Callable[[Moment], bool]] = {
    "bad_continuation": _bad_continuation,
    "continuation": lambda moment: bool(graphs(moment.after.waiting)),
    "parallel_tasks": lambda moment: sum(bool(pending.task) for pending in moment.after.pendings) > 1,
    "step_budget": lambda moment: any(record.status == "budget" for record in moment.after.completed),
    "task_failed": lambda moment: any(evidence.status == "error" for evidence in moment.after.evidence),
    "approval": lambda moment: isinstance(moment.after.ask, Approval),
    "cancel_while_pending": _cancel_while_pending,
    "compaction": _compaction,
    "done_refused": lambda moment: moment.after.refused_done > 0,
    "claim_refused": lambda moment: bool(moment.after.refusals),
    "late_result": lambda moment: len(moment.after.late) > (len(moment.before.late) if moment.before else 0),
    "model_wait": lambda moment: getattr(moment.event, "remedy", "") == "try_again",
    "outrun": _outrun,
    "parallel_reads": lambda moment: len({pending.step for pending in moment.after.pendings}) > 1,
    "pause": lambda moment: moment.after.status is Status.PAUSED,
    "question": lambda moment: isinstance(moment.after.ask, Question),
    "reframe": lambda moment: moment.after.reframes > 0,
    "reopened": lambda moment: moment.after.reopened > 0,
    "repair": lambda moment: moment.after.asking is not None and moment.after.asking.repairs > 0,
    "retry": lambda moment: any(pending.attempt > 1 for pending in moment.after.pendings),
    "unticked": _unticked,
    "verification_refused": lambda moment: moment.after.unverified > 0,
    "wait": lambda moment: isinstance(moment.after.waiting, Sleeping),
}
