"""Clock, ids of new runs and their W3C traces, and names of callers in the journal.

A name is such as `token ops, os user ann`, or `bus, says "ann"`: only unverified words of a caller are quoted.
"""

import hashlib
import re
from datetime import datetime, timedelta
from functools import lru_cache

from ulid import ULID

from groundwork.service.machine import entropy, this
from groundwork.telemetry.span import span_id

BEHIND = 0.5
"""Speed of time while the computer's clock is behind the last instant."""


class SystemClock:
    """Monotonic clock: while the computer's clock is behind, time runs at half speed. Implements the port Clock."""

    def __init__(self) -> None:
        self._wall, self._monotonic = this().wall, this().monotonic
        self._told, self._told_at = self._wall(), self._monotonic()

    def now(self) -> datetime:
        at = self._monotonic()
        least = self._told + timedelta(seconds=(at - self._told_at) * BEHIND)
        self._told, self._told_at = max(self._wall(), least), at
        return self._told

    def new_run_id(self, at: datetime) -> str:
        milliseconds = int(at.timestamp() * 1000)
        return f"run_{ULID.from_bytes(milliseconds.to_bytes(6) + entropy(10))}"


@lru_cache(maxsize=4096)
def trace_id(run_id: str) -> str:
    """32 hex digits: the 128 bits of the run's ULID, else a hash of the id."""
    try:
        return ULID.from_str(run_id.removeprefix("run_")).hex
    except ValueError:
        return hashlib.sha256(run_id.encode()).hexdigest()[:32]


@lru_cache(maxsize=4096)
def root_span_id(run_id: str) -> str:
    """16 hex digits."""
    return span_id(f"{run_id}:start")


def trace_url(template: str | None, run_id: str) -> str | None:
    return template.replace("{trace_id}", trace_id(run_id)) if template else None


def trace_url_of_child(of_parent: str | None, parent_run_id: str, run_id: str) -> str | None:
    return of_parent.replace(trace_id(parent_run_id), trace_id(run_id)) if of_parent else None


LONGEST_WORD = 100
"""Characters kept of an unverified word."""

_OF_OURS = re.compile(r"[\"“”„\s]+")


def by(*known: str, says: str | None = None, repeated_by: str | None = None) -> str:
    """Joins the `known` facts with the caller's unverified words."""
    words = [*filter(None, known)]
    for verb, word in (("says", says), ("sent again by", repeated_by)):
        if word:
            unquoted = _OF_OURS.sub(" ", word[:LONGEST_WORD]).replace(",", ";").strip()
            words.append(f'{verb} "{unquoted}"')
    return ", ".join(words)
