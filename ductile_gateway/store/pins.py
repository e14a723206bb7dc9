"""The keys of the agent that are trusted, pinned: a row, the newest first. Fills the port Pins."""

from collections.abc import Mapping, Sequence

from ductile_gateway.store.rows import Rows
from groundwork.service.errors import TryAgain
from groundwork.service.machine import utc_now
from schemas.signing import AgentKey
from schemas.values import dataclass

_PINNED = "SELECT subject, head, body FROM rows WHERE kind = 'pinned'"


@dataclass(frozen=True, slots=True)
class Pin:
    id: str
    public: str
    pinned_at: str


@dataclass(frozen=True, slots=True)
class Pinned:
    pins: tuple[Pin, ...]
    body: bytes = b""


class RowPins:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def pins(self) -> tuple[Pin, ...]:
        return next((row.pins for row in self._rows.listed(Pinned, _PINNED)), ())

    def all(self) -> Mapping[str, str]:
        return {pin.id: pin.public for pin in self.pins()}

    async def trust(self, keys: Sequence[AgentKey]) -> None:
        """These and no others. Raises TryAgain where they were changed meanwhile."""
        seen, at = await self.newest(), utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
        since = {(pin.id, pin.public): pin.pinned_at for pin in seen}
        wanted = tuple(Pin(key.id, key.public, since.get((key.id, key.public), at)) for key in keys)

        def instead(row: Pinned | None) -> Pinned:
            if (row.pins if row else ()) != seen:
                raise TryAgain("another gateway has pinned keys of the agent meanwhile")
            return Pinned(wanted)

        await self._rows.change(Pinned, instead)

    async def newest(self) -> tuple[Pin, ...]:
        row = await self._rows.read(Pinned)
        return row.pins if row else ()
