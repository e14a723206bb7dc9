"""Dedupe keys and ids, as functions: the only place that formats them.

A dedupe key is also the message's `Nats-Msg-Id`. From attempt 2 on the keys of a step end in `:attempt:<a>`, so that a
retry is not swallowed as a duplicate of the first attempt.
"""

LATE_SUFFIX = ":late"
_RUN = "agentic:run:"


def _attempt(attempt: int) -> str:
    return "" if attempt == 1 else f":attempt:{attempt}"


def start(external_id: str) -> str:
    return f"agentic:start:{external_id}"


def request(run_id: str, step: int, attempt: int) -> str:
    return f"{_RUN}{run_id}:step:{step}:request{_attempt(attempt)}"


def result(run_id: str, step: int, attempt: int) -> str:
    return f"{_RUN}{run_id}:step:{step}:result{_attempt(attempt)}"


def late_result(run_id: str, step: int, attempt: int) -> str:
    """Of what came of a call after it was answered that its end was not seen."""
    return f"{result(run_id, step, attempt)}{LATE_SUFFIX}"


def call(run_id: str, step: int, tool: str, attempt: int) -> str:
    """The idempotency key towards the tool (external sibling card: `run_id:step:tool:attempt`)."""
    return f"{run_id}:{step}:{tool}:{attempt}"


def cancel(run_id: str) -> str:
    return f"{_RUN}{run_id}:cancel"


def signal(run_id: str, signal_id: str) -> str:
    return f"{_RUN}{run_id}:signal:{signal_id}"


def accepted(run_id: str) -> str:
    return f"{_RUN}{run_id}:accepted"


def progress(run_id: str, seq: int, phase: str = "") -> str:
    """Of the last phase of an entry; of one that the same entry committed before it, with that `phase`."""
    return f"{_RUN}{run_id}:progress:{seq}{phase and f':{phase}'}"


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
