"""Dedupe keys and call ids: the only place that formats them.

A dedupe key is also the message's `Nats-Msg-Id`. From attempt 2 on the keys of a step end in `:attempt:<a>`, so that a
retry is not dropped as a duplicate of the first attempt. `task` and `asked_in` (its round) name a sub-request; without
them a key names the step's own request.
"""

import re
from functools import partial

from schemas import subjects

DEDUPE_KEYS = {
    subjects.START: "agentic:start:{external_id}",
    subjects.TOOL_REQUEST: "agentic:run:{run_id}:step:{step}:request",
    subjects.TOOL_RESULT: "agentic:run:{run_id}:step:{step}:result",
    subjects.CANCEL: "agentic:run:{run_id}:cancel",
    subjects.SIGNAL: "agentic:run:{run_id}:signal:{signal_id}",
    subjects.WAKE_ACCEPTED: "agentic:run:{run_id}:accepted",
    subjects.PROGRESS: "agentic:run:{run_id}:progress:{seq}",
    subjects.COMPLETED: "agentic:run:{run_id}:completed",
    subjects.ESCALATED: "agentic:run:{run_id}:escalated:{seq}",
    subjects.FAILED: "agentic:run:{run_id}:failed",
    subjects.CANCELLED: "agentic:run:{run_id}:cancelled",
    subjects.WAITING: "agentic:run:{run_id}:waiting:{seq}",
    subjects.REOPENED: "agentic:run:{run_id}:reopened:{seq}",
    subjects.REJECTED: "agentic:rejected:{stream}:{stream_seq}",
}

KEYS_OF_TASKS = {
    subjects.TOOL_REQUEST: "agentic:run:{run_id}:step:{step}:task:{task}:{round}:request",
    subjects.TOOL_RESULT: "agentic:run:{run_id}:step:{step}:task:{task}:{round}:result",
}

RETRY_SUFFIX = ":attempt:{attempt}"
"""Suffix of the keys of a tool request and of its result from attempt 2 on."""

LATE_SUFFIX = ":late"
_TASK = r"(?P<task>[a-z0-9_.-]+):(?P<round>[1-9]\d{0,8}):"
_RESULT = re.compile(rf"(?:task:{_TASK})?result(?::attempt:\d+)?(?::late)?")
_CALL = re.compile(rf"(?:{_TASK})?(?P<tool>[a-z0-9_-]+):\d+")


def dedupe_key(event: str, run_id: str = "", seq: int = 0, **names: str | int) -> str:
    """The key of an event, or of its first attempt, with the names in its template in DEDUPE_KEYS."""
    return DEDUPE_KEYS[event].format(run_id=run_id, seq=seq, **names)


def start(external_id: str) -> str:
    return dedupe_key(subjects.START, external_id=external_id)


def _of_call(
    event: str, run_id: str, step: int, attempt: int, task: str | None = None, asked_in: int | None = None
) -> str:
    template = (KEYS_OF_TASKS if task else DEDUPE_KEYS)[event]
    key = template.format(run_id=run_id, step=step, task=task, round=asked_in)
    return key if attempt == 1 else key + RETRY_SUFFIX.format(attempt=attempt)


request = partial(_of_call, subjects.TOOL_REQUEST)
result = partial(_of_call, subjects.TOOL_RESULT)


def task_of_result(dedupe_key: str, run_id: str, step: int) -> tuple[str | None, int | None] | None:
    """Task and round of the result with that key, each None for the step's own. Returns None for another key."""
    of_step = f"agentic:run:{run_id}:step:{step}:"
    named = _RESULT.fullmatch(dedupe_key, len(of_step)) if dedupe_key.startswith(of_step) else None
    return (named["task"], int(named["round"]) if named["task"] else None) if named else None


def call(run_id: str, step: int, tool: str, attempt: int, task: str | None = None, asked_in: int | None = None) -> str:
    which = f":{task}:{asked_in}" if task else ""
    return f"{run_id}:{step}{which}:{tool}:{attempt}"


def capability_fields(
    run_id: str, step: int, attempt: int, tool: str, task: str | None = None, asked_in: int | None = None
) -> tuple[str, ...]:
    return run_id, str(step), str(attempt), tool, task or "", str(asked_in or 0)


def task_of_call(call_key: str, run_id: str, step: int, tool: str) -> tuple[str | None, int | None] | None:
    """Task and round of a call of that step and tool, each None for the step's own. Returns None for another call."""
    of_step = f"{run_id}:{step}:"
    named = _CALL.fullmatch(call_key, len(of_step)) if call_key.startswith(of_step) else None
    if named is None or named["tool"] != tool:
        return None
    return named["task"], int(named["round"]) if named["task"] else None
