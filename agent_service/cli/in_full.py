"""A step and a model call in full, as text: nothing is cut, and what others wrote steers no terminal."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from agent_service.cli.client import Json
from agent_service.cli.drawing import day_and_time
from agent_service.cli.marks import MARKS, UNKNOWN
from agent_service.core.unseen import visible
from agent_service.telling.plain import duration


def step(detail: Json) -> str:
    return "\n".join(map(visible, _step(detail)))


def call(view: Json) -> str:
    return "\n".join(map(visible, _call(view)))


def _step(detail: Json) -> Iterator[str]:
    yield f"step {detail['step']} of {detail['run_id']}: {detail['tool']} {detail['command']}"
    yield f"  asked of   {detail['executor'] or 'whoever takes them'} (route {detail['route']})"
    for name, text in (("why", detail["rationale"]), ("expected", detail["expected"]), ("risk", detail["risk"])):
        if text:
            yield f"  {name:<10} {text}"
    if detail["child_run_id"]:
        yield f"  run        {detail['child_run_id']}"
    yield "\n── arguments"
    yield from _values(detail["arguments"])
    yield from _attempts("attempt", detail["attempts"])
    for task in detail["tasks"]:
        yield from _task(task)


def _task(task: Json) -> Iterator[str]:
    mark, _ = MARKS.get(task["status"], UNKNOWN)
    name = f"{task['id']} of round {task['round']}"
    yield f"\n── {name}: {mark} {task['status']}, {task['tool']} {task['command']}"
    told = (("asks", task["query"]), ("why", task["reason"]), ("after", ", ".join(task["depends_on"])))
    for name_of, text in (*told, ("allowed by", task["approved_by"]), ("run", task["child_run_id"])):
        if text:
            yield f"  {name_of:<10} {text}"
    if task["error"] and not task["attempts"]:
        yield f"{task['error']['class']}: {task['error']['message']}"
    yield from _values(task["arguments"])
    yield from _attempts(f"{name}, attempt", task["attempts"])


def _attempts(name: str, attempts: Iterable[Json]) -> Iterator[str]:
    for attempt in attempts:
        yield f"\n── {name} {attempt['attempt']}: {_attempt(attempt)}"
        if attempt["error"]:
            again = "may be tried again" if attempt["error"]["retryable"] else "is not tried again"
            yield f"{attempt['error']['class']}: {attempt['error']['message']} ({again})"
        yield from _values(attempt["result"] or {})


def _attempt(attempt: Json) -> str:
    mark, _ = MARKS.get(attempt["status"], UNKNOWN)
    asked, done = attempt["requested_at"], attempt["completed_at"]
    told = [
        f"{mark} {attempt['status']}",
        f"asked {day_and_time(asked)}" if asked else "not asked yet",
        f"answered {day_and_time(done)}{_after(asked, done)}" if done else "",
        f"to be answered by {day_and_time(attempt['deadline_at'])}" if asked and attempt["status"] == "open" else "",
        attempt["execution"] or "",
    ]
    return ", ".join(filter(None, told))


def _call(view: Json) -> Iterator[str]:
    along = " with the next plan" if view["with_plan"] and view["phase"] != "plan" else ""
    yield f"call {view['call']} of {view['run_id']}: {view['phase']}{along}"
    yield f"  model      {view['model'] or 'not known'}"
    replied = view["replied_at"]
    answered = f", replied {day_and_time(replied)}{_after(view['asked_at'], replied)}" if replied else ", no reply"
    yield f"  asked      {day_and_time(view['asked_at'])}{answered}"
    if view["usage"]:
        yield f"  spent      {_usage(view['usage'])}"
    if view["prompt_note"]:
        yield f"  note       {view['prompt_note']}"
    for part in view["prompt"]:
        yield f"\n── {part['role']}\n{part['text']}"
    yield "\n── reply"
    yield json.dumps(view["reply"], indent=2, ensure_ascii=False) if view["reply"] else "none"
    yield f"\n── outcome\n{view['outcome']}"


def _usage(usage: Json) -> str:
    cost = "cost unknown" if usage["cost_usd"] is None else f"{usage['cost_usd']:.4f} USD"
    cached = f" ({usage['cache_read_tokens']:,} from the cache)" if usage["cache_read_tokens"] else ""
    return f"{usage['input_tokens']:,} tokens in{cached}, {usage['output_tokens']:,} out, {cost}"


def _values(values: dict[str, Any]) -> Iterator[str]:
    """Each value below its name where it has several lines, so that a text can be read."""
    for name, value in values.items():
        if isinstance(value, str) and "\n" in value:
            yield f"{name}:"
            yield from (f"    {line}" for line in value.splitlines())
        else:
            yield f"{name}: {value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)}"


def _after(began: str | None, ended: str) -> str:
    if began is None:
        return ""
    return f" (after {duration(datetime.fromisoformat(ended) - datetime.fromisoformat(began))})"
