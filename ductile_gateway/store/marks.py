"""Where the ledger is, in the stream or in one gateway's database, so that never both go on with it.

    coming ─▶ here          from the database of one gateway into the stream
    here ─▶ leaving ─▶ left  from the stream into the database of one gateway

Each step is said before the next one begins, so that the same command finishes an interrupted move.
"""

from typing import NamedTuple

from ductile_gateway.store.stream import StreamRows
from groundwork.archive.series import backup_in
from groundwork.service.errors import Misconfigured
from schemas import subjects

TO_STREAM = "ductile-gateway migrate --to jetstream"
TO_FILE = "ductile-gateway migrate --to sqlite"
RESTORE = "ductile-gateway restore FILE --backup"


class Mark(NamedTuple):
    """`state`: coming, here, leaving or left. `store`: the one gateway's store id; or the backup (`of_backup`)."""

    state: str = "here"
    store: str = ""
    body: bytes = b""

    def is_(self, state: str, store: str) -> bool:
        return (self.state, self.store) == (state, store)


async def mark_of(rows: StreamRows) -> Mark:
    return await rows.read(Mark) or Mark()


async def put_mark(rows: StreamRows, state: str, store: str, *, before: Mark) -> Mark:
    """In place of the mark before. Raises Misconfigured where another has moved it meanwhile."""

    def instead(there: Mark | None) -> Mark:
        found = there or Mark()
        if found.is_(state, store):
            return found
        if not found.is_(before.state, before.store):
            raise Misconfigured(
                f"somebody else moves the ledger: it is {found.state} now. Look who does, and try again"
            )
        return found._replace(state=state, store=store)

    return await rows.change(Mark, instead) or Mark()


async def refuse_unless_here(rows: StreamRows) -> None:
    mark = await mark_of(rows)
    if mark.state == "left":
        raise Misconfigured(
            f"the ledger in {subjects.STREAM_LEDGER} was moved into the database of one gateway ({mark.store}): set "
            "gateway.store to its folder, or move it back: " + TO_STREAM
        )
    if mark.state != "here":
        backup = backup_in(mark.store)
        coming = f"{RESTORE} {backup}" if backup else TO_STREAM
        command = coming if mark.state == "coming" else TO_FILE
        raise Misconfigured(f"the ledger is being moved, and that was not finished: run `{command}` again")
