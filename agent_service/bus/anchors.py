"""The anchors on the bus: one per store, in the bucket of the leases."""

import base64
import json

from agent_service.anchors import ANCHOR, Anchor
from groundwork.nats.link import NatsLink
from schemas import subjects

PATIENCE_S = 2.0


class NatsAnchors:
    """Fills the port AnchorBoard. Raises TryAgain while the bus does not answer, and Failure."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def get(self, store: str) -> Anchor | None:
        """What stands there, whoever wrote it; None for what is no anchor."""
        wanted = json.dumps({"last_by_subj": _subject(store)}).encode()
        found = json.loads(await self._link.request(f"$JS.API.STREAM.MSG.GET.KV_{subjects.LEASE_BUCKET}", wanted))
        try:
            return ANCHOR.validate_json(base64.b64decode(found["message"]["data"]))
        except (KeyError, ValueError):
            return None

    async def put(self, anchor: Anchor) -> None:
        msg_id = f"anchor:{anchor.store}:{anchor.mac}"
        body = ANCHOR.dump_json(anchor)
        await self._link.publish(_subject(anchor.store), body, msg_id=msg_id, headers={}, within_s=PATIENCE_S)


def _subject(store: str) -> str:
    return f"$KV.{subjects.LEASE_BUCKET}.{subjects.LEASE_ANCHOR}.{store}"
