"""The keys of the agent that several gateways trust, pinned for all of them. Fills the port Pins.

They are under a seal by the key that all gateways have: whoever else writes there pins nothing.
"""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence

from ductile_gateway.ports import Clock
from ductile_gateway.store.agent_keys import Pin
from ductile_gateway.store.seals import PINS as SEALED_AS
from ductile_gateway.store.seals import Seals
from ductile_gateway.store.shared.rows import PINS, Row, Rows, framed, unframed
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile
from schemas import subjects
from schemas.signing import AgentKey

SUBJECT = f"{subjects.LEDGER}.{PINS}"
_ALL = "SELECT id, public, pinned_at FROM pins ORDER BY place"
SPOILT = Pin("", "", "")
"""What other hands have changed."""
MEND = "find out who may write to the stream of gateways, then `ductile-gateway trust --again`"


class SharedPins:
    """`known` tells them as they are known here, and SPOILT where a seal did not fit."""

    def __init__(self, known: Callable[[], Sequence[Pin]], rows: Rows, *, seals: Seals, clock: Clock) -> None:
        self._known = known
        self._rows = rows
        self._seals = seals
        self._clock = clock

    def all(self) -> Mapping[str, str]:
        return {pin.id: pin.public for pin in self.pins()}

    def pins(self) -> Sequence[Pin]:
        """Newest first. Raises TryAgain."""
        return _unspoilt(self._known())

    async def trust(self, keys: Sequence[AgentKey]) -> None:
        at = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        seen = self._readable()
        since = {(pin.id, pin.public): pin.pinned_at for pin in seen}
        wanted = [Pin(key.id, key.public, since.get((key.id, key.public), at)) for key in keys]

        def work(row: Row) -> bytes | None:
            if row.body is not None and read_fact(row.body, self._seals) not in (seen, [SPOILT]):
                raise TryAgain("another gateway has pinned keys of the agent meanwhile")
            return written(wanted, self._seals)

        await self._rows.change(SUBJECT, work)

    def _readable(self) -> list[Pin]:
        with contextlib.suppress(TryAgain):
            return list(self.pins())
        return []


class PinsByHand(SharedPins):
    """For who has no copy: as the leader of the stream has them, once it was asked."""

    def __init__(self, rows: Rows, *, seals: Seals, clock: Clock) -> None:
        super().__init__(lambda: self._found, rows, seals=seals, clock=clock)
        self._found: Sequence[Pin] = ()

    async def look(self) -> None:
        row = await self._rows.read(SUBJECT)
        self._found = read_fact(row.body, self._seals) if row.body is not None else ()

    async def trust(self, keys: Sequence[AgentKey]) -> None:
        await super().trust(keys)
        await self.look()


def copied(file: SqliteFile) -> Sequence[Pin]:
    """Those in a gateway's copy."""
    return [Pin(*row) for row in file.look_up(_ALL)]


def kept(file: SqliteFile) -> Sequence[Pin]:
    """The same, to be kept elsewhere. Raises TryAgain where other hands have changed them."""
    return _unspoilt(copied(file))


def written(pins: Sequence[Pin], seals: Seals) -> bytes:
    """The pins as a fact."""
    told = json.dumps([[pin.id, pin.public, pin.pinned_at] for pin in pins])
    return framed({"seal": seals.make(SEALED_AS, told)}, told.encode())


def read_fact(fact: bytes, seals: Seals) -> list[Pin]:
    """The pins in a fact; in their place SPOILT where other hands wrote it."""
    with contextlib.suppress(TypeError, ValueError):
        columns, told = unframed(fact)
        if seals.fits(columns.get("seal"), SEALED_AS, told):
            return [Pin(*one) for one in json.loads(told)]
    return [SPOILT]


def _unspoilt(pins: Sequence[Pin]) -> Sequence[Pin]:
    if SPOILT in pins:
        raise TryAgain("the keys of the agent that are pinned were changed by other hands: " + MEND)
    return pins
