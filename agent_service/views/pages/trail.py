"""The texts of a run's pages, and trace.jsonl: a line per act and decision (RFC-95), hash-chained."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from agent_service.core.events import ModelReplied, ModelUnavailable, Provenance
from agent_service.core.facts import AttemptAnswered, CallAsked, Decided, Name, RequestSent, StepFinished, TaskFinished
from agent_service.core.phases import Decision, Plan
from agent_service.core.state import RunState
from agent_service.history.artifacts import FILES
from agent_service.history.history import History
from agent_service.history.items import Failure
from agent_service.history.plain import clipped, rfc3339
from agent_service.history.results import execution_of, result_of, summary_of_answer
from agent_service.history.words import covered_by, decision_of, gist
from agent_service.run.journal import GENESIS, Entry, Record, as_decided
from agent_service.views.pages.decisions import decisions_page
from agent_service.views.pages.given import context_page, skills_page
from agent_service.views.pages.progress import memory_page, plan_page
from agent_service.views.pages.told import Told
from groundwork.service.invisible import json_visible

Line = dict[str, JsonValue]

TRACE = "trace.jsonl"
MAX_SUMMARY = 500

_WRITTEN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def trace(told: Told) -> str:
    previous, written, lines = GENESIS, [], _Lines()
    for line in (line for record in told.records for line in lines.of(record)):
        previous = line["hash"] = chained(previous, line)
        written.append(json_visible(_WRITTEN.encode(line)) + "\n")
    return "".join(written)


def chained(previous: str, line: Line) -> str:
    bare = {name: value for name, value in line.items() if name != "hash"}
    return hashlib.sha256((previous + _CANONICAL.encode(bare)).encode()).hexdigest()


def broken_line(text: str) -> int | None:
    previous = GENESIS
    for number, written in enumerate(text.splitlines(), start=1):
        try:
            line = json.loads(written)
            sound = isinstance(line, dict) and line.get("hash") == chained(previous, line)
        except (ValueError, RecursionError):
            sound = False
        if not sound:
            return number
        previous = line["hash"]
    return None


class _Lines:
    """Knows the arguments of what was sent, and the question that is open."""

    def __init__(self) -> None:
        self._sent: dict[Name, dict[str, JsonValue]] = {}
        self._asked: CallAsked | None = None
        self._tries = 1

    def of(self, record: Record) -> Iterator[Line]:
        answers = record.all(AttemptAnswered)
        for answer in answers:
            yield self._answer(record, answer)
        finished: tuple[TaskFinished | StepFinished, ...] = (*record.all(TaskFinished), *record.all(StepFinished))
        for over in finished:
            if not covered_by(over, {answer.name for answer in answers}):
                yield self._finished(record, over)
        match record.event:
            case ModelReplied() as reply:
                yield from (_decision(record, reply, one) for one in record.all(Decided))
            case ModelUnavailable() as event:
                yield self._no_decision(record, event)
        self._follow(record)

    def _follow(self, record: Record) -> None:
        for sent in record.all(RequestSent):
            self._sent[sent.pending.name] = sent.pending.action.arguments
        self._tries = self._tries + 1 if isinstance(record.event, ModelUnavailable) else 1
        self._asked = record.first(CallAsked) or self._asked

    def _answer(self, record: Record, answer: AttemptAnswered) -> Line:
        execution = execution_of(result_of(record, answer))
        return _line(
            record,
            "act",
            step=answer.step,
            attempt=answer.attempt,
            tool=answer.tool,
            args=self._sent.get(answer.name),
            result_status=answer.status,
            result_summary=summary_of_answer(record, answer) or None,
            **_failed(Failure.of(answer.error)),
            **({"execution": execution.model_dump(exclude_none=True)} if execution else {}),
            **_task(answer.name),
        )

    def _finished(self, record: Record, over: TaskFinished | StepFinished) -> Line:
        name = over.name if isinstance(over, TaskFinished) else (over.step, "", 0)
        is_ok = over.status == "ok"
        return _line(
            record,
            "act",
            step=over.step,
            attempt=over.attempt if isinstance(over, StepFinished) else 0,
            tool=over.tool,
            args=self._sent.get(name),
            result_status=over.status,
            result_summary=over.summary if is_ok else None,
            **_failed(None if is_ok else Failure(error_class=over.error_class, message=over.summary)),
            **_task(name),
        )

    def _no_decision(self, record: Record, event: ModelUnavailable) -> Line:
        return _line(
            record,
            self._asked.phase.value if self._asked else "",
            step=max((step for step, *_ in self._sent), default=0),
            attempt=self._tries,
            result_status="error",
            error={"class": event.error_class, "message": event.message},
            retryable=event.remedy == "try_again",
        )


def _line(record: Record, phase: str, *, step: int, attempt: int, **rest: JsonValue) -> Line:
    line: Line = {
        "phase": phase,
        "step": step,
        "attempt": attempt,
        "timestamp": rfc3339(record.at),
        "tool": None,
        "args": None,
        "result_status": None,
        "result_summary": None,
        "error": None,
        "retryable": None,
        "usage": None,
        "cost_usd": None,
        "entry": record.entry.seq,
    }
    return line | rest


def _failed(failure: Failure | None) -> Line:
    if failure is None:
        return {}
    return {"error": {"class": failure.error_class, "message": failure.message}, "retryable": failure.retryable}


def _task(name: Name) -> Line:
    _, task, asked_in = name
    return {"task": task, "round": asked_in} if task else {}


def _decision(record: Record, reply: ModelReplied, one: Decided) -> Line:
    decision, usage, paid = decision_of(reply, one), reply.usage, not one.along
    action = decision.action if isinstance(decision, Plan) else None
    again = record.first(CallAsked) is not None
    return _line(
        record,
        one.phase.value,
        step=one.step,
        attempt=one.attempt,
        tool=action.tool if action else None,
        args=action.arguments if action else None,
        result_status=one.status,
        result_summary=clipped(gist(decision), MAX_SUMMARY),
        **_failed(Failure(error_class=one.error_class, message=one.why, retryable=again) if one.why else None),
        usage={
            "model": reply.model,
            "input_tokens": usage.input_tokens if paid else 0,
            "output_tokens": usage.output_tokens if paid else 0,
            "cache_read_tokens": usage.cache_read_tokens if paid else 0,
            "cache_write_tokens": usage.cache_write_tokens if paid else 0,
        },
        cost_usd=usage.cost_usd if paid else 0.0,
        **_along(decision),
        **_made_with(reply.provenance),
    )


def _along(decision: Decision) -> Line:
    if not isinstance(decision, Plan) or not decision.also:
        return {}
    return {"also": [{"tool": action.tool, "args": action.arguments} for action in decision.also]}


def _made_with(provenance: Provenance | None) -> Line:
    if provenance is None:
        return {}
    return {"prompt_hash": provenance.prompt_hash, "schema_hash": provenance.schema_hash}


_RENDERERS: tuple[Callable[[Told], str], ...] = (
    context_page,
    memory_page,
    skills_page,
    plan_page,
    decisions_page,
    trace,
)
_PAGES = dict(zip(FILES, _RENDERERS, strict=True))


def pages(run: RunState, records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """By file name. `records`: the whole journal of `run`."""
    told = Told(run=run, records=records, history=History(records))
    for name, render in _PAGES.items():
        yield name, render(told)


def trail(entries: Sequence[Entry]) -> Mapping[str, str]:
    """The pages with the run as the rules tell it. Raises ValueError for a journal that is empty or cannot be told."""
    return dict(pages(as_decided(entries), [entry.record() for entry in entries]))
