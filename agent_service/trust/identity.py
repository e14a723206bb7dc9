"""Who and when: the clock, ids of new runs and their W3C traces, and who did something, as a text for the journal.

Such as `token ops, os user ann`, or `bus, says "ann"`: only a caller's own word is in quotation marks.
"""

import hashlib
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache

from ulid import ULID

from groundwork.service.machine import entropy, this
from groundwork.telemetry.span import span_id

BEHIND = 0.5
"""The pace of time while the computer's clock is behind what was told."""


class SystemClock:
    """Never goes back: while the computer's clock is behind, time goes on at half its pace. Fills the port Clock."""

    def __init__(
        self, wall: Callable[[], datetime] | None = None, monotonic: Callable[[], float] | None = None
    ) -> None:
        self._wall = wall or this().wall
        self._monotonic = monotonic or this().monotonic
        self._told, self._told_at = self._wall(), self._monotonic()

    def now(self) -> datetime:
        at = self._monotonic()
        least = self._told + timedelta(seconds=(at - self._told_at) * BEHIND)
        self._told, self._told_at = max(self._wall(), least), at
        return self._told

    def new_run_id(self) -> str:
        milliseconds = int(self.now().timestamp() * 1000)
        return f"run_{ULID.from_bytes(milliseconds.to_bytes(6) + entropy(10))}"


@lru_cache(maxsize=4096)
def trace_id(run_id: str) -> str:
    """32 hex digits: the 128 bits of the run's ULID; for an id that holds none, a hash of it."""
    try:
        return ULID.from_str(run_id.removeprefix("run_")).hex
    except ValueError:
        return hashlib.sha256(run_id.encode()).hexdigest()[:32]


@lru_cache(maxsize=4096)
def root_span_id(run_id: str) -> str:
    """16 hex digits: the span to which all belongs that belongs to a run as a whole."""
    return span_id(f"{run_id}:start")


def trace_url(template: str | None, run_id: str) -> str | None:
    return template.replace("{trace_id}", trace_id(run_id)) if template else None


def trace_url_of_child(of_parent: str | None, parent_run_id: str, run_id: str) -> str | None:
    return of_parent.replace(trace_id(parent_run_id), trace_id(run_id)) if of_parent else None


LONGEST_WORD = 100
"""Characters of a caller's own word that are kept."""

_OF_OURS = re.compile(r"[\"“”„\s]+")


def by(*known: str, says: str | None = None, repeated_by: str | None = None) -> str:
    """Joins what is `known` of a caller with its own word: who a message says it is from (`says`), or is resent by."""
    own = {"says": says, "sent again by": repeated_by}
    return ", ".join((*filter(None, known), *(f'{verb} "{_own(word)}"' for verb, word in own.items() if word)))


def _own(word: str) -> str:
    return _OF_OURS.sub(" ", word[:LONGEST_WORD]).replace(",", ";").strip()
