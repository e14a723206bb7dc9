"""The calls among the shared rows, by key; and what is written of them soon, because nobody waits for it."""

import asyncio
import contextlib
import logging
from typing import NoReturn

from ductile_gateway.store.shared import calls
from ductile_gateway.store.shared.calls import Call, Change
from ductile_gateway.store.shared.rows import CALL, Row, Rows, subject_of
from groundwork.service.errors import TryAgain

SOON_S = 0.2
WRITTEN_AT_ONCE = 16

log = logging.getLogger(__name__)


class CallRows:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._soon: dict[str, tuple[Change, ...]] = {}
        self._asked = asyncio.Event()

    async def find(self, key: str) -> Call:
        return self._after_soon(calls.read(await self._rows.read(subject_of(CALL, key)), key=key))

    async def change(self, key: str, change: Change) -> Call:
        soon = self._soon.get(key, ())

        def work(row: Row) -> bytes | None:
            call = calls.read(row, key=key)
            wanted = change(self._after_soon(call))
            return None if wanted == call else calls.written(wanted)

        stored = await self._rows.change(subject_of(CALL, key), work)
        self._are_written(key, soon)
        return calls.read(stored, key=key)

    def soon(self, key: str, change: Change) -> None:
        """Change it with its next change, or a moment later. A crash may lose that."""
        self._soon[key] = (*self._soon.get(key, ()), change)
        self._asked.set()

    async def write_soon(self) -> NoReturn:
        while True:
            await self._asked.wait()
            await asyncio.sleep(SOON_S)
            self._asked.clear()
            keys = list(self._soon)
            for first in range(0, len(keys), WRITTEN_AT_ONCE):
                await asyncio.gather(*map(self._write, keys[first : first + WRITTEN_AT_ONCE]))

    async def _write(self, key: str) -> None:
        try:
            await self.change(key, lambda call: call)
        except TryAgain as error:
            log.debug("written later", extra={"call": key, "why": str(error)})
            self._asked.set()

    def _after_soon(self, call: Call) -> Call:
        for change in self._soon.get(call.key, ()):
            with contextlib.suppress(TryAgain):  # another gateway was faster
                call = change(call)
        return call

    def _are_written(self, key: str, written: tuple[Change, ...]) -> None:
        left = tuple(change for change in self._soon.get(key, ()) if change not in written)
        if left:
            self._soon[key] = left
        else:
            self._soon.pop(key, None)
