"""What an answer of a Ductile says, and whether it is Ductile's own or a proxy's. Pure.

A refusal counts only where Ductile itself says it, with one JSON object `{"error": …}` in words of its own
(`internal/api`: auth.go, handlers.go; `internal/relay`: receiver.go). Anything else may have let the call pass before.
"""

import json
import re
from typing import Any

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
FORBIDDEN = "forbidden"
"""What the relay ingress says, as many others do, of a signature that is not its peer's."""
_WORDS = (
    *("plugin not found", "command not supported by plugin", "pipeline not found", "job not found"),
    *("invalid JSON body", "payload must be a JSON object", "root baggage claims failed", "event.type"),
    *("missing or invalid Authorization header", "invalid Authorization header format", "invalid token"),
    *("insufficient scope", "synchronous pipeline trigger requires", "unknown relay peer", "peer identity mismatch"),
    *("missing relay ", "invalid relay ", "relay timestamp outside", "relay key id mismatch"),
    *("origin instance mismatch", "relay payload too large", "event type not allowed for peer"),
)
_TOO_LARGE = {"error", "bytes_actual", "bytes_limit"}


class NotSent(Exception):
    """Nothing has left this machine: the same again later is safe."""


class DuctileRefused(Exception):
    """Ductile itself refuses: nothing has started. Of a question it may be a stranger, unless the words are Ductile's
    `own`."""

    def __init__(self, status: int, message: str, *, own: bool = True) -> None:
        super().__init__(f"Ductile answered {status}: {message}")
        self.status = status
        self.own = own


class Lost(Exception):
    """The request was sent, and no answer that could be read says what became of it."""


class Away(Exception):
    """A question has not been answered: ask again later. `refused`: Ductile is there, and does not say it to us."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class Unreadable(Exception):
    """The answer is empty or too large, as that of a job is whose result cannot be told: ask the log of jobs."""


def fields_of(body: bytes) -> dict[str, Any]:
    """The object in a body; empty where there is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def own_refusal(body: bytes) -> str | None:
    """The words with which Ductile refuses a call or an event; None for an answer that may be anybody's."""
    found = fields_of(body)
    words = found.get("error")
    is_own = set(found) == _TOO_LARGE or (set(found) == {"error"} and str(words).startswith(_WORDS))
    return words if isinstance(words, str) and is_own else None


def job_id_in(fields: dict[str, Any]) -> str:
    job_id = fields.get("job_id")
    return job_id if isinstance(job_id, str) and JOB_ID.fullmatch(job_id) else ""
