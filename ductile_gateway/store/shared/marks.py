"""Where the ledger is, in the stream or in one gateway's database, so that never both go on with it.

    coming ─▶ here          from the database of one gateway into the stream
    here ─▶ leaving ─▶ left  from the stream into the database of one gateway

Each step is said before the next one begins, so that the same command finishes an interrupted move.
"""

from dataclasses import dataclass
from functools import partial

from ductile_gateway.store.shared.rows import Row, Rows, framed, unframed
from groundwork.archive.series import backup_in
from groundwork.service.errors import Misconfigured
from schemas import subjects

SUBJECT = f"{subjects.LEDGER}.moved"
TO_STREAM = "ductile-gateway migrate --to jetstream"
TO_FILE = "ductile-gateway migrate --to sqlite"
RESTORE = "ductile-gateway restore FILE --backup"


@dataclass(frozen=True, slots=True)
class Mark:
    """`state`: coming, here, leaving or left. `store`: the one gateway's store id; or the backup (`of_backup`)."""

    state: str = "here"
    store: str = ""


def read(row: Row) -> Mark:
    if row.body is None:
        return Mark()
    columns, _ = unframed(row.body)
    return Mark(str(columns["state"]), str(columns["store"]))


async def put(rows: Rows, mark: Mark, *, before: Mark) -> None:
    """In place of the mark before. Raises Misconfigured where another has moved it meanwhile."""
    await rows.change(SUBJECT, partial(_instead, mark=mark, before=before))


async def refuse_unless_here(rows: Rows) -> None:
    mark = read(await rows.read(SUBJECT))
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


def _instead(row: Row, *, mark: Mark, before: Mark) -> bytes | None:
    found = read(row)
    if found == mark:
        return None
    if found != before:
        raise Misconfigured(f"somebody else moves the ledger: it is {found.state} now. Look who does, and try again")
    return framed({"state": mark.state, "store": mark.store})
