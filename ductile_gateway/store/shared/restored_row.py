"""That the ledger of several gateways was restored from a backup, as all of them know it."""

from ductile_gateway.store.restored import Restored
from ductile_gateway.store.shared.rows import Row, framed, unframed
from groundwork.service.errors import Misconfigured
from schemas import subjects

RESTORED_SUBJECT = f"{subjects.LEDGER}.restored"


def written_restored(restored: Restored) -> bytes:
    return framed({}, restored.model_dump_json().encode())


def read_restored(row: Row) -> Restored | None:
    """None where it was not. Raises Misconfigured for what no gateway wrote, and TryAgain for what a newer one did."""
    if row.body is None:
        return None
    try:
        return Restored.model_validate_json(unframed(row.body)[1])
    except ValueError:
        raise Misconfigured(
            f"{RESTORED_SUBJECT} in the stream {subjects.STREAM_LEDGER}, which says what was restored, cannot be read: "
            "restore the backup again, into a stream made anew"
        ) from None
