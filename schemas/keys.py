"""Dedupe keys and ids, as functions: the only place that formats them.

A dedupe key is also the message's `Nats-Msg-Id`. From attempt 2 on the keys of a step end in `:attempt:<a>`, so that a
retry is not swallowed as a duplicate of the first attempt. A sub-request of a step is named by its `task` and
`asked_in`, the round in which it is asked for; without them it is the step's own.
"""

import re

LATE_SUFFIX = ":late"
_TASK = r"(?P<task>[a-z0-9_.-]+):(?P<round>[1-9]\d{0,8}):"
_RUN = "agentic:run:"
_RESULT = re.compile(rf"(?:task:{_TASK})?result(?::attempt:\d+)?(?::late)?")
_CALL = re.compile(rf"(?:{_TASK})?(?P<tool>[a-z0-9_-]+):\d+")


def _attempt(attempt: int) -> str:
    return "" if attempt == 1 else f":attempt:{attempt}"


def start(external_id: str) -> str:
    return f"agentic:start:{external_id}"


def _of(run_id: str, step: int, task: str | None, asked_in: int | None) -> str:
    return f"{_RUN}{run_id}:step:{step}" + (f":task:{task}:{asked_in}" if task else "")


def request(run_id: str, step: int, attempt: int, task: str | None = None, asked_in: int | None = None) -> str:
    return f"{_of(run_id, step, task, asked_in)}:request{_attempt(attempt)}"


def result(run_id: str, step: int, attempt: int, task: str | None = None, asked_in: int | None = None) -> str:
    return f"{_of(run_id, step, task, asked_in)}:result{_attempt(attempt)}"


def late_result(run_id: str, step: int, attempt: int, task: str | None = None, asked_in: int | None = None) -> str:
    return f"{result(run_id, step, attempt, task, asked_in)}{LATE_SUFFIX}"


def answers(dedupe_key: str, run_id: str, step: int) -> tuple[str | None, int | None] | None:
    """The task and round of which the result with that key is, each None for the step's own; None for another key."""
    of_step = f"{_of(run_id, step, None, None)}:"
    named = _RESULT.fullmatch(dedupe_key.removeprefix(of_step)) if dedupe_key.startswith(of_step) else None
    return _sub_request(named) if named else None


def call(run_id: str, step: int, tool: str, attempt: int, task: str | None = None, asked_in: int | None = None) -> str:
    which = f":{task}:{asked_in}" if task else ""
    return f"{run_id}:{step}{which}:{tool}:{attempt}"


def proven(
    run_id: str, step: int, attempt: int, tool: str, task: str | None = None, asked_in: int | None = None
) -> tuple[str, ...]:
    return run_id, str(step), str(attempt), tool, task or "", str(asked_in or 0)


def called(call_key: str, run_id: str, step: int, tool: str) -> tuple[str | None, int | None] | None:
    """The task and round of which the call of that step and tool is, each None for the step's own; None for another."""
    of_step = f"{run_id}:{step}:"
    named = _CALL.fullmatch(call_key.removeprefix(of_step)) if call_key.startswith(of_step) else None
    return _sub_request(named) if named and named["tool"] == tool else None


def _sub_request(named: re.Match[str]) -> tuple[str | None, int | None]:
    return named["task"], int(named["round"]) if named["round"] else None


def cancel(run_id: str) -> str:
    return f"{_RUN}{run_id}:cancel"


def signal(run_id: str, signal_id: str) -> str:
    return f"{_RUN}{run_id}:signal:{signal_id}"


def accepted(run_id: str) -> str:
    return f"{_RUN}{run_id}:accepted"


def progress(run_id: str, seq: int) -> str:
    return f"{_RUN}{run_id}:progress:{seq}"


def completed(run_id: str) -> str:
    return f"{_RUN}{run_id}:completed"


def escalated(run_id: str, seq: int) -> str:
    return f"{_RUN}{run_id}:escalated:{seq}"


def failed(run_id: str) -> str:
    return f"{_RUN}{run_id}:failed"


def rejected(stream: str, stream_seq: int) -> str:
    return f"agentic:rejected:{stream}:{stream_seq}"


def cancelled(run_id: str) -> str:
    return f"{_RUN}{run_id}:cancelled"


def waiting(run_id: str, seq: int) -> str:
    return f"{_RUN}{run_id}:waiting:{seq}"


def reopened(run_id: str, seq: int) -> str:
    return f"{_RUN}{run_id}:reopened:{seq}"
