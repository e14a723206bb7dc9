"""That the ledger of several gateways was restored from a backup, as all of them know it.

It is under a seal by the key that all gateways have, for it decides which writes are in doubt.
"""

import contextlib

from ductile_gateway.store.restored import Restored
from ductile_gateway.store.seals import RESTORED, Seals
from ductile_gateway.store.shared.rows import Row, framed, unframed
from groundwork.service.errors import Misconfigured
from schemas import subjects

SUBJECT = f"{subjects.LEDGER}.restored"


def written(restored: Restored, seals: Seals) -> bytes:
    """As a fact."""
    told = restored.model_dump_json()
    return framed({"seal": seals.make(RESTORED, told)}, told.encode())


def read(row: Row, seals: Seals) -> Restored | None:
    """None where it was not. Raises Misconfigured for what other hands wrote, and TryAgain for what a newer gateway
    wrote."""
    if row.body is None:
        return None
    with contextlib.suppress(ValueError):
        columns, told = unframed(row.body)
        if seals.fits(columns.get("seal"), RESTORED, told):
            return Restored.model_validate_json(told)
    raise Misconfigured(
        f"{SUBJECT} in the stream {subjects.STREAM_LEDGER}, which says what was restored, is not under the key of the "
        "gateways: give this one the keys of the others (gateway.keys_file); or, if it has them, find out who may "
        "write to the stream, and restore the backup again, into a stream made anew"
    )
