"""Rows come into a stream that has none: written, and held against what they were to be. Twice is as good as once."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby

from ductile_gateway.store.shared.moving import Told
from ductile_gateway.store.shared.rows import NOTIFICATION, Change, Row, Rows
from groundwork.nats.shared_log import SharedLog
from groundwork.service.errors import Misconfigured
from schemas import subjects

TOGETHER = 64
"""Rows that are on their way at the same time."""


def rows_without_copy(log: SharedLog) -> Rows:
    return Rows(log, _no_copy)


async def refuse_a_stream_with_rows(log: SharedLog) -> None:
    """Raises Misconfigured for a stream that holds anything, and TryAgain."""
    if await log.end():
        raise Misconfigured(
            f"the stream {subjects.STREAM_LEDGER} is not empty: a ledger can be moved only into an empty one. Make it "
            f"anew: `nats stream rm {subjects.STREAM_LEDGER}`, then `agentic setup --shared`"
        )


async def bring(rows: Rows, told: Sequence[Told]) -> int:
    """How many are there now. Raises Misconfigured where one is not as it was, and TryAgain."""
    for some in _bunches(told):
        await asyncio.gather(*(rows.change(subject, _unless_there(body)) for subject, body in some))
    for some in _bunches(told):
        there = await asyncio.gather(*(rows.read(subject) for subject, _ in some))
        for (subject, body), row in zip(some, there, strict=True):
            if row.body != body:
                raise Misconfigured(f"{subject} is in the stream, but not as it was: somebody else writes there")
    return len(told)


def _bunches(told: Sequence[Told]) -> Iterator[Sequence[Told]]:
    for is_owed, some in groupby(told, key=lambda one: one[0].startswith(f"{subjects.LEDGER}.{NOTIFICATION}.")):
        alike = list(some)
        size = 1 if is_owed else TOGETHER
        yield from (alike[at : at + size] for at in range(0, len(alike), size))


def _unless_there(body: bytes) -> Change:
    def change(row: Row) -> bytes | None:
        return body if row.body is None else None

    return change


async def _no_copy(seq: int) -> None:
    del seq
