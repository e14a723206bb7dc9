"""trace.jsonl: a line per act and decision (RFC-95), hash-chained."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

from pydantic import JsonValue

from agent_service.core.phases import Plan
from agent_service.history.history import History
from agent_service.history.items import Item, Thought
from agent_service.history.plain import clipped, rfc3339
from agent_service.history.words import said
from agent_service.run.journal import GENESIS
from groundwork.service.invisible import json_visible

Line = dict[str, JsonValue]

MAX_SUMMARY = 500

_WRITTEN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def trace(history: History, ended: Iterable[Item]) -> str:
    """`ended`: the items, each as it ended. Each line has the hash of the one before and its own canonical JSON."""
    previous, written = GENESIS, []
    for line in _lines(history, ended):
        previous = line["hash"] = hashlib.sha256((previous + _CANONICAL.encode(line)).encode()).hexdigest()
        written.append(json_visible(_WRITTEN.encode(line)) + "\n")
    return "".join(written)


def _lines(history: History, ended: Iterable[Item]) -> Iterator[Line]:
    tries = Counter[int | None]()
    for item in ended:
        if item.kind == "phase":
            tries[item.call] += 1
            if item.thought:
                yield _decision(item, item.thought)
            elif item.error:
                yield _line(item, phase=item.phase or "", attempt=tries[item.call], result_status="error")
        elif item.outcome and (item.kind == "attempt" or item.answered_in != item.ended_in):
            above = history.by_id.get(item.parent or "") if item.kind == "attempt" else item
            yield _act(item, above.about if above else {})


def _line(item: Item, **told: JsonValue) -> Line:
    """`told` takes the place of what the item says."""
    error = item.error
    line: Line = {
        "phase": "act",
        "step": item.step or 0,
        "attempt": item.attempt or 0,
        "timestamp": rfc3339(item.ended_at) if item.ended_at else None,
        "tool": item.tool,
        "args": None,
        "result_status": item.outcome,
        "result_summary": None,
        "error": {"class": error.error_class, "message": error.message} if error else None,
        "retryable": error.retryable if error else None,
        "usage": None,
        "cost_usd": None,
        "entry": item.ended_in,
    }
    return line | told


def _act(item: Item, request: Mapping[str, JsonValue]) -> Line:
    line = _line(item, args=request.get("arguments"))
    line["result_summary"] = None if item.error else item.summary or None
    if item.execution:
        line["execution"] = item.execution.model_dump(exclude_none=True)
    return line | ({"task": item.task, "round": item.round} if item.task else {})


def _decision(item: Item, thought: Thought) -> Line:
    reply, one, decision = thought.reply, thought.became, thought.decision
    summary = clipped(str(said(decision)), MAX_SUMMARY)
    line = _line(
        item, phase=one.phase, step=one.step, attempt=one.attempt, result_status=one.status, result_summary=summary
    )
    if not one.along:
        usage = asdict(reply.usage)
        line |= {"cost_usd": usage.pop("cost_usd"), "usage": {"model": reply.model, **usage}}
    if isinstance(decision, Plan):
        line |= {"tool": decision.action.tool, "args": decision.action.arguments}
        also: JsonValue = [{"tool": action.tool, "args": action.arguments} for action in decision.also]
        line |= {"also": also} if also else {}
    if made := reply.provenance:
        line |= {"prompt_hash": made.prompt_hash, "schema_hash": made.schema_hash}
    return line
