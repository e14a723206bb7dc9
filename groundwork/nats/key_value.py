"""One value of a key-value bucket, as everybody who may read the bucket's stream finds it."""

import base64
import json
from typing import Any

from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain

ASK_WITHIN_S = 2.0
_REMOVED = "KV-Operation"


async def value(link: NatsLink, bucket: str, key: str) -> bytes | None:
    """The newest value; None where there is none, or it was removed. Raises TryAgain where nobody can say."""
    wanted = json.dumps({"last_by_subj": f"$KV.{bucket}.{key}"}).encode()
    answer = await link.request(f"$JS.API.STREAM.MSG.GET.KV_{bucket}", wanted, timeout_s=ASK_WITHIN_S)
    try:
        message: dict[str, Any] = json.loads(answer).get("message") or {}
        if _REMOVED.encode() in base64.b64decode(message.get("hdrs", "")):
            return None
        return base64.b64decode(message["data"]) if "data" in message else None
    except (ValueError, TypeError, AttributeError) as error:
        raise TryAgain(f"the bucket {bucket}: not answered by JetStream") from error
