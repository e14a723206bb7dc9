"""A log that several processes share: facts in one order, each of which follows on the newest of its subject."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One message of the log. `seq` is its place in it."""

    seq: int
    subject: str
    body: bytes
    headers: Mapping[str, str]
    at: datetime


class Moved(Exception):
    """Another fact is the newest of the subject: load and decide again."""
