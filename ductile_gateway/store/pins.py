"""The keys of the agent that are trusted, pinned. Both classes fill the port Pins.

One gateway alone pins them in a file of the store's folder, which a command may write beside it; it is read again
whenever it changed. Lines: `<id> <public key> <pinned at>`, the newest first; `#` begins a comment. Several gateways
pin them in a row.
"""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import NamedTuple

from ductile_gateway.store.rows import LocalRows
from ductile_gateway.store.stream import StreamRows
from groundwork.service import store_folder
from groundwork.service.errors import TryAgain
from groundwork.service.keys import PUBLIC
from groundwork.service.machine import utc_now
from groundwork.sqlite.file import SqliteFile
from schemas.signing import AgentKey
from schemas.values import dataclass

FILE = "agent_keys"
_HEAD = "# Keys by which this gateway knows the agent's word: `ductile-gateway trust` shows and renews them.\n"


@dataclass(frozen=True, slots=True)
class Pin:
    id: str
    public: str
    pinned_at: str


class FilePins:
    """Those in a folder. What cannot be read or written raises TryAgain: nothing is passed on until it is mended."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._seen: tuple[int, int] | None = None
        self._pins: tuple[Pin, ...] = ()

    def all(self) -> Mapping[str, str]:
        return {pin.id: pin.public for pin in self.pins()}

    def pins(self) -> Sequence[Pin]:
        try:
            stat = self._path.stat()
            if (seen := (stat.st_mtime_ns, stat.st_ino)) != self._seen:
                self._pins, self._seen = self._read(), seen
        except FileNotFoundError:
            self._pins, self._seen = (), None
        except OSError as error:
            raise TryAgain(f"{self._path} cannot be read: {error.strerror}") from error
        return self._pins

    async def trust(self, keys: Sequence[AgentKey]) -> None:
        known: Sequence[Pin] = ()
        with contextlib.suppress(TryAgain):
            known = self.pins()
        self.keep(_pinned(keys, known))

    def keep(self, pins: Sequence[Pin]) -> None:
        text = _HEAD + "".join(f"{pin.id} {pin.public} {pin.pinned_at}\n" for pin in pins)
        try:
            store_folder.write(self._path, text)
        except OSError as error:
            raise TryAgain(f"{self._path} cannot be written: {error.strerror}") from error

    def _read(self) -> tuple[Pin, ...]:
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        found = [line.split() for line in lines if line.strip() and not line.startswith("#")]
        if any(len(words) != 3 or not PUBLIC.fullmatch(words[1]) for words in found):
            raise TryAgain(f"{self._path} says something else than keys: mend it, or `ductile-gateway trust --again`")
        return tuple(Pin(*words) for words in found)


class Pinned(NamedTuple):
    """`body`: the pins as JSON."""

    body: bytes

    @classmethod
    def of(cls, pins: Sequence[Pin]) -> "Pinned":
        return cls(body=json.dumps([astuple(pin) for pin in pins]).encode())

    def pins(self) -> Sequence[Pin]:
        return tuple(Pin(*one) for one in json.loads(self.body))


def copied_pins(file: SqliteFile) -> Sequence[Pin]:
    row = LocalRows(file).look_up(Pinned)
    return row.pins() if row else ()


class RowPins:
    """`known` tells the pins as the own copy has them."""

    def __init__(self, known: Callable[[], Sequence[Pin]], rows: StreamRows) -> None:
        self.pins = known
        self._rows = rows

    def all(self) -> Mapping[str, str]:
        return {pin.id: pin.public for pin in self.pins()}

    async def trust(self, keys: Sequence[AgentKey]) -> None:
        seen = self.pins()
        wanted = _pinned(keys, seen)

        def instead(row: Pinned | None) -> Pinned:
            if row and row.pins() != seen:
                raise TryAgain("another gateway has pinned keys of the agent meanwhile")
            return Pinned.of(wanted)

        await self._rows.change(Pinned, instead)


def _pinned(keys: Sequence[AgentKey], known: Sequence[Pin]) -> Sequence[Pin]:
    at = utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
    since = {(pin.id, pin.public): pin.pinned_at for pin in known}
    return tuple(Pin(key.id, key.public, since.get((key.id, key.public), at)) for key in keys)
