"""What an answer of a Ductile says, and whether it is Ductile's own or a proxy's. Pure.

A refusal counts only where Ductile itself says it, with one JSON object `{"error": …}` in words of its own
(`internal/api`: auth.go, handlers.go; `internal/relay`: receiver.go). Anything else may have let the call pass before.
"""

import json
from collections.abc import Mapping

from pydantic import JsonValue

_REFUSALS: Mapping[int, tuple[str, ...]] = {
    400: (
        "plugin not found",
        "command not supported by plugin",
        "invalid JSON body",
        "payload must be a JSON object",
        "root baggage claims failed",
        "synchronous pipeline trigger requires",
        "event.type",
    ),
    401: ("missing or invalid Authorization header", "invalid Authorization header format", "invalid token"),
    403: (
        "insufficient scope",
        "unknown relay peer",
        "peer identity mismatch",
        "missing relay ",
        "invalid relay ",
        "relay timestamp outside",
        "relay key id mismatch",
        "origin instance mismatch",
    ),
    404: ("pipeline not found", "job not found"),
    413: ("relay payload too large",),
    422: ("event type not allowed for peer",),
}
FORBIDDEN = "forbidden"
"""What the relay ingress says, as many others do, of a signature that is not its peer's."""
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


def own_refusal(status: int, body: bytes) -> str | None:
    """The words with which Ductile refuses a call or an event; None for an answer that may be anybody's."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    words = found.get("error") if isinstance(found, dict) else None
    if not isinstance(words, str):
        return None
    if status == 413 and set(found) == _TOO_LARGE:
        return words
    return words if set(found) == {"error"} and words.startswith(_REFUSALS.get(status, ())) else None


def is_health(found: Mapping[str, JsonValue]) -> bool:
    """Whether this is what Ductile says of its health: others say `ok`, and nothing of a queue."""
    return isinstance(found.get("queue_depth"), int)
