"""Rows that several gateways have in common: each is the newest fact of a subject of its own, and whole in it.

    newest fact, as the leader has it ─▶ change (pure) ─▶ append, if it is the newest still ─▶ every gateway's copy

Decisions are made over the newest fact, never over a copy, which may be behind. Of two concurrent changes one decides
again.
"""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from groundwork.nats.shared_log import Fact, Moved
from groundwork.service.errors import TryAgain
from schemas import subjects

CALL, ARTIFACTS, RECEIVED, NOTIFICATION, PINS = "call", "artifacts", "received", "notification", "pins"
FORGOTTEN = "forgotten"
"""What a row is of; the last tells copies that rows are no more."""
VERSION = 1
TRIES = 20
COME_BACK_S = 0.2
PATIENCE_S = 10.0
"""Electing a leader takes 4 to 9 s."""
SHOWN_WITHIN_S = 0.5
FORGOTTEN_AT_ONCE = 16

_INSTEAD = {"Nats-Rollup": "sub"}


@dataclass(frozen=True, slots=True)
class Row:
    """`seq`: of its newest fact; 0, and no body, where there is none."""

    seq: int = 0
    body: bytes | None = None


Change = Callable[[Row], bytes | None]
"""What a row is to hold instead; None to leave it."""


class Newer(TryAgain):
    """A row of a version that is not known here: whoever knows it sees to it."""


class Log(Protocol):
    async def append(
        self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = ...
    ) -> int: ...

    async def newest(self, subject: str) -> Fact | None: ...

    async def purge(self, subject: str) -> None: ...


class Members(Protocol):
    @property
    def me(self) -> str: ...

    def mine(self, owner: str, key: str) -> bool: ...


class Rows:
    def __init__(self, log: Log, copied: Callable[[int], Awaitable[None]]) -> None:
        """`copied` returns when the own copy has a fact, by its sequence, or raises TryAgain after a while."""
        self._log = log
        self._copied = copied

    async def read(self, subject: str) -> Row:
        """As the leader has it. An election is waited for: what is to be written down has happened."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                newest = await self._log.newest(subject)
            except TryAgain:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(COME_BACK_S)
            else:
                return Row(newest.seq, newest.body) if newest else Row()

    async def change(self, subject: str, change: Change) -> Row:
        """The row after the change, which may be called several times. On return the own copy has it, if it is not far
        behind."""
        for _ in range(TRIES):
            row = await self.read(subject)
            if (wanted := change(row)) is not None:
                try:
                    row = Row(await self._log.append(subject, wanted, after=row.seq, headers=_INSTEAD), wanted)
                except Moved:
                    continue
            await self.shown(row.seq)
            return row
        raise TryAgain(f"{subject} is changed by others all the time: nothing of this change is stored", COME_BACK_S)

    async def forget(self, forgotten: Sequence[str]) -> None:
        """Have the rows of these subjects no more. Copies are told by a fact of their own (`tell`), afterwards."""
        for first in range(0, len(forgotten), FORGOTTEN_AT_ONCE):
            await asyncio.gather(*map(self._log.purge, forgotten[first : first + FORGOTTEN_AT_ONCE]))

    async def tell(self, subject: str, body: bytes) -> None:
        await self.shown(await self._log.append(subject, body, after=None, headers=_INSTEAD))

    async def shown(self, seq: int) -> None:
        """Return when the own copy is so far, or soon: nothing is decided over it."""
        with contextlib.suppress(TryAgain, TimeoutError):
            async with asyncio.timeout(SHOWN_WITHIN_S):
                await self._copied(seq)


def subject_of(kind: str, *names: str) -> str:
    named = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:32]
    return f"{subjects.LEDGER}.{kind}.{named}"


def subject_of_forgotten(kind: str) -> str:
    return f"{subjects.LEDGER}.{FORGOTTEN}.{kind}"


def framed(columns: Mapping[str, Any], body: bytes = b"") -> bytes:
    """A row as a fact: a line of JSON, and behind it what is large, as it is."""
    line = json.dumps({"version": VERSION} | dict(columns), separators=(",", ":"))
    return line.encode() + b"\n" + body


def told_before(microseconds: int) -> bytes:
    """A fact that tells until when, in microseconds since 1970 UTC."""
    return framed({"before": microseconds})


def unframed(fact: bytes) -> tuple[dict[str, Any], bytes]:
    """The columns and the body of a row. Raises Newer, and ValueError for what no gateway wrote."""
    line, _, body = fact.partition(b"\n")
    columns = json.loads(line)
    version = columns.pop("version", None) if isinstance(columns, dict) else None
    if version is None:
        raise ValueError("it says no version")
    if version != VERSION:
        raise Newer(f"a newer gateway wrote it (version {version}): it is left to that one. Upgrade this one")
    return columns, body
