"""The texts of a run's pages, and trace.jsonl: a line per act and decision (RFC-95), hash-chained."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from agent_service.core.events import ModelReplied, ModelUnavailable, Provenance
from agent_service.core.phases import Decision, Plan
from agent_service.run.journal import GENESIS, Entry
from agent_service.run.moments import Moment, retell
from agent_service.telling.acts import Act, act_of, settled
from agent_service.telling.outputs import FILES
from agent_service.telling.pages.decisions import decisions_page
from agent_service.telling.pages.given import context_page, skills_page
from agent_service.telling.pages.progress import memory_page, plan_page
from agent_service.telling.plain import clipped, rfc3339
from agent_service.telling.rulings import Ruling, rulings
from agent_service.telling.sayings import gist
from groundwork.service.invisible import json_visible

Line = dict[str, JsonValue]

TRACE = "trace.jsonl"
MAX_SUMMARY = 500

_WRITTEN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def trace(moments: Iterable[Moment]) -> str:
    previous, written = GENESIS, []
    for line in (line for moment in moments for line in _lines(moment)):
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


def _lines(moment: Moment) -> Iterator[Line]:
    for act in filter(None, (act_of(moment), *settled(moment))):
        yield _act_line(moment, act)
    if isinstance(moment.event, ModelReplied):
        for place, ruling in enumerate(rulings(moment)):
            yield _decision_line(moment, moment.event, ruling, paid=place == 0)
    if isinstance(moment.event, ModelUnavailable):
        yield _no_decision_line(moment, moment.event)


def _line(moment: Moment, phase: str, *, step: int, attempt: int, **rest: JsonValue) -> Line:
    line: Line = {
        "phase": phase,
        "step": step,
        "attempt": attempt,
        "timestamp": rfc3339(moment.entry.at),
        "tool": None,
        "args": None,
        "result_status": None,
        "result_summary": None,
        "error": None,
        "retryable": None,
        "usage": None,
        "cost_usd": None,
        "entry": moment.entry.seq,
    }
    return line | rest


def _act_line(moment: Moment, act: Act) -> Line:
    error = act.error
    return _line(
        moment,
        "act",
        step=act.step,
        attempt=act.attempt,
        tool=act.tool,
        args=act.action.arguments if act.action else None,
        result_status=act.status,
        result_summary=act.summary,
        error={"class": error.error_class, "message": error.message} if error else None,
        retryable=error.retryable if error else None,
        **({"execution": act.execution.model_dump(exclude_none=True)} if act.execution else {}),
        **_task(act),
    )


def _task(act: Act) -> Line:
    return {"task": act.task, "round": act.round} if act.task else {}


def _decision_line(moment: Moment, reply: ModelReplied, ruling: Ruling, *, paid: bool) -> Line:
    action = ruling.decision.action if isinstance(ruling.decision, Plan) else None
    usage = reply.usage
    return _line(
        moment,
        ruling.phase.value,
        step=ruling.step,
        attempt=ruling.attempt,
        tool=action.tool if action else None,
        args=action.arguments if action else None,
        result_status=ruling.status,
        result_summary=clipped(gist(ruling.decision), MAX_SUMMARY),
        error={"class": ruling.error_class, "message": ruling.why} if ruling.why else None,
        retryable=moment.after.asking is not None if ruling.why else None,
        usage={
            "model": reply.model,
            "input_tokens": usage.input_tokens if paid else 0,
            "output_tokens": usage.output_tokens if paid else 0,
            "cache_read_tokens": usage.cache_read_tokens if paid else 0,
            "cache_write_tokens": usage.cache_write_tokens if paid else 0,
        },
        cost_usd=usage.cost_usd if paid else 0.0,
        **_along(ruling.decision),
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


def _no_decision_line(moment: Moment, event: ModelUnavailable) -> Line:
    asking = moment.before.asking if moment.before else None
    return _line(
        moment,
        asking.phase.value if asking else "",
        step=moment.after.step,
        attempt=asking.tries + 1 if asking else 1,
        result_status="error",
        error={"class": event.error_class, "message": event.message},
        retryable=event.remedy == "try_again",
    )


_RENDERERS: tuple[Callable[[Sequence[Moment]], str], ...] = (
    context_page,
    memory_page,
    skills_page,
    plan_page,
    decisions_page,
    trace,
)
_PAGES = dict(zip(FILES, _RENDERERS, strict=True))


def trail(entries: Sequence[Entry]) -> Mapping[str, str]:
    """By file name. Raises ValueError for a journal that is empty or cannot be told."""
    return dict(pages_of(tuple(retell(entries))))


def pages_of(moments: Sequence[Moment]) -> Iterator[tuple[str, str]]:
    if not moments:
        raise ValueError("a trail needs at least one entry: this journal has none")
    for name, render in _PAGES.items():
        yield name, render(moments)
