"""The keys of the agent that the gateway trusts, pinned in a file of the store's folder. Fills the port Pins.

The file is read again whenever it changed. Lines: `<id> <public key> <pinned at>`, the newest first; `#` begins a
comment.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ductile_gateway.ports import Clock
from groundwork.service import store_folder
from groundwork.service.errors import TryAgain
from groundwork.service.keys import PUBLIC
from schemas.signing import AgentKey

FILE = "agent_keys"
_HEAD = "# Keys by which this gateway knows the agent's word: `ductile-gateway trust` shows and renews them.\n"


@dataclass(frozen=True, slots=True)
class Pin:
    id: str
    public: str
    pinned_at: str


class PinnedKeys:
    """Those in a folder. What cannot be read or written raises TryAgain: nothing is passed on until it is mended."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._path = folder / FILE
        self._clock = clock
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
        at = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        since = {(pin.id, pin.public): pin.pinned_at for pin in self._readable()}
        self.keep([Pin(key.id, key.public, since.get((key.id, key.public), at)) for key in keys])

    def _readable(self) -> Sequence[Pin]:
        with contextlib.suppress(TryAgain):
            return self.pins()
        return ()

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
