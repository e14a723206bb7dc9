"""The keys of the agent that several gateways trust, pinned for all of them. Fills the port Pins."""

import json
from collections.abc import Callable, Mapping, Sequence

from ductile_gateway.ports import Clock
from ductile_gateway.store.agent_keys import Pin
from ductile_gateway.store.shared.rows import PINS, Row, Rows, framed, unframed
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile
from schemas import subjects
from schemas.signing import AgentKey

SUBJECT = f"{subjects.LEDGER}.{PINS}"
_ALL = "SELECT id, public, pinned_at FROM pins ORDER BY place"


class SharedPins:
    def __init__(self, known: Callable[[], Sequence[Pin]], rows: Rows, *, clock: Clock) -> None:
        self._known = known
        self._rows = rows
        self._clock = clock

    def all(self) -> Mapping[str, str]:
        return {pin.id: pin.public for pin in self.pins()}

    def pins(self) -> Sequence[Pin]:
        return self._known()

    async def trust(self, keys: Sequence[AgentKey]) -> None:
        at = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        seen = list(self.pins())
        since = {(pin.id, pin.public): pin.pinned_at for pin in seen}
        wanted = [Pin(key.id, key.public, since.get((key.id, key.public), at)) for key in keys]

        def work(row: Row) -> bytes | None:
            if row.body is not None and read_fact(row.body) != seen:
                raise TryAgain("another gateway has pinned keys of the agent meanwhile")
            return written(wanted)

        await self._rows.change(SUBJECT, work)


class PinsByHand(SharedPins):
    """For a command without a copy: as the leader of the stream had them at `look`."""

    def __init__(self, rows: Rows, *, clock: Clock) -> None:
        super().__init__(lambda: self._found, rows, clock=clock)
        self._found: Sequence[Pin] = ()

    async def look(self) -> None:
        row = await self._rows.read(SUBJECT)
        self._found = read_fact(row.body) if row.body is not None else ()

    async def trust(self, keys: Sequence[AgentKey]) -> None:
        await super().trust(keys)
        await self.look()


def copied(file: SqliteFile) -> Sequence[Pin]:
    return [Pin(*row) for row in file.look_up(_ALL)]


def written(pins: Sequence[Pin]) -> bytes:
    return framed({}, json.dumps([[pin.id, pin.public, pin.pinned_at] for pin in pins]).encode())


def read_fact(fact: bytes) -> list[Pin]:
    return [Pin(*one) for one in json.loads(unframed(fact)[1])]
