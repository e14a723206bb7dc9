"""What the ledger keeps of a call: first an intent, which is durable before the tool runs, then the answer.

An intent alone means that the tool may have run. An answer is for ever: a request that comes again gets the same one.
"""

from dataclasses import dataclass
from datetime import datetime

from ductile_gateway.calls.asked import Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The tool is about to be run, until `deadline_at`. `may_repeat`: it reads, or repeating it does no harm."""

    asked: Asked
    may_repeat: bool
    deadline_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a call, as it is published: `body` is the message, `digest` of the request that it answers."""

    key: str
    digest: str
    run_id: str
    step: int
    attempt: int
    trace_id: str
    body: bytes
    completed_at: datetime


Past = Intent | Answer | None
