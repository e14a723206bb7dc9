"""Dead letters as their stream keeps them, and what a person may do about them.

Settling one is a message on `agentic.dlq.settled.<id>` with who, when and the letter's headers; it outlives a dropped
letter. A server that lost messages gives their sequences out again, so it also names when the letter was buried.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from agent_service.history.plain import rfc3339
from schemas import subjects
from schemas.envelope import RUN_ID
from schemas.events import INBOUND

RETRY_OF = "Agentic-Retry-Of"

_BURIED, _SETTLED, _BY = "Dead-Letter-Buried", "Dead-Letter-Settled", "Dead-Letter-By"
_SAID = "Dead-Letter-"
_SECRETS = re.compile(r'("(?:callback|capability)"\s*:\s*)"(?:[^"\\]|\\.)*(?:"|$)')
_NUMBER = re.compile(r"[0-9]{1,18}")

Deed = Literal["retried", "dropped"]


class NoSuchLetter(Exception):
    """The number names no letter, or one that is gone."""


class NotSentAgain(Exception):
    """The refused message must not or cannot be published again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A message in a stream. `size`: its body's bytes."""

    subject: str
    seq: int
    at: datetime
    headers: Mapping[str, str]
    size: int
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    deed: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """`buried` is when it was; `size` and `body` are the letter's own. `held`: its stream still has it."""

    id: int
    buried: datetime
    headers: Mapping[str, str]
    size: int
    body: bytes = field(repr=False, default=b"")
    settled: Settled | None = None
    held: bool = True

    @property
    def subject(self) -> str:
        return self.said("Subject") or "?"

    @property
    def place(self) -> tuple[str, int]:
        return self.said("Stream"), self.number("Sequence")

    @property
    def is_whole(self) -> bool:
        return not self.said("Body") and not self.said("Headers")

    def said(self, name: str) -> str:
        return self.headers.get(f"{_SAID}{name}", "")

    def number(self, name: str) -> int:
        return int(self.said(name)) if _NUMBER.fullmatch(self.said(name)) else 0

    def is_of(self, message: Stored) -> bool:
        at = _instant(self.said("Time"))
        return message.subject == self.subject and (at is None or _same(at, message.at))

    def for_programs(self) -> dict[str, Any]:
        stream, sequence = self.place
        settled = {"by": self.settled.by, "at": rfc3339(self.settled.at)} if self.settled else None
        return {
            "id": self.id,
            "at": rfc3339(self.buried),
            "status": self.settled.deed if self.settled else "open",
            "subject": self.subject,
            "reason": self.said("Reason"),
            "deliveries": self.number("Deliveries"),
            "run_id": self.headers.get(RUN_ID),
            "consumer": self.said("Consumer") or None,
            "target": self.said("Target") or None,
            "stream": stream or None,
            "stream_seq": sequence or None,
            "msg_id": self.said("Msg-Id") or self.said("Key") or None,
            "bytes": self.size,
            "settled": settled,
        }


def fold(messages: Iterable[Stored]) -> list[DeadLetter]:
    found: dict[int, DeadLetter] = {}
    for message in messages:
        letter = _settled(message) or letter_in(message)
        if letter and letter.settled and letter.id in found:
            _settle(found, letter)
        elif letter:
            found[letter.id] = letter
    return sorted(found.values(), key=lambda letter: letter.id)


def letter_in(message: Stored) -> DeadLetter | None:
    prefix = subjects.ALL_DEAD_LETTERS.removesuffix(">")
    if not message.subject.startswith(prefix) or message.subject.startswith(f"{subjects.SETTLED}."):
        return None
    return DeadLetter(id=message.seq, buried=message.at, headers=message.headers, size=message.size, body=message.body)


def record(letter: DeadLetter, deed: Deed, by: str) -> tuple[str, dict[str, str]]:
    said = {name: value for name, value in letter.headers.items() if name.startswith(_SAID) or name == RUN_ID}
    return f"{subjects.SETTLED}.{letter.id}", said | {_BURIED: rfc3339(letter.buried), _SETTLED: deed, _BY: by}


def obstacle(letter: DeadLetter) -> str:
    if done := letter.settled:
        again = "; if it was refused again, that is a dead letter of its own" if done.deed == "retried" else ""
        return f"it was {done.deed} by {done.by} at {rfc3339(done.at)}{again}"
    if letter.said("Target"):
        return "it is a delivery to an address outside, not a message of the bus: deliver it by hand, then drop it"
    if letter.subject not in INBOUND and not letter.subject.startswith(f"{subjects.TOOL_REQUEST}."):
        return f"{letter.subject[:80]} is an announcement, which is published once: drop it when it is dealt with"
    return ""


def _settled(message: Stored) -> DeadLetter | None:
    number = message.subject.removeprefix(f"{subjects.SETTLED}.")
    buried = _instant(message.headers.get(_BURIED, ""))
    if not _NUMBER.fullmatch(number) or buried is None:
        return None
    settled = Settled(deed=message.headers.get(_SETTLED, "?"), by=message.headers.get(_BY, "?"), at=message.at)
    return DeadLetter(id=int(number), buried=buried, headers=message.headers, size=0, settled=settled, held=False)


def _settle(found: dict[int, DeadLetter], told: DeadLetter) -> None:
    if _same(found[told.id].buried, told.buried):
        found[told.id] = replace(found[told.id], settled=told.settled)


def _instant(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _same(one: datetime, other: datetime) -> bool:
    return abs(one - other) < timedelta(milliseconds=1)


def without_secrets(body: str) -> str:
    return _SECRETS.sub(r'\1"(hidden)"', body)
