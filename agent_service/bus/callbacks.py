"""Whether the gateway would ever send to a callback, asked of it over the bus. Fills Callbacks."""

import json

from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure
from schemas import subjects

ANSWER_WITHIN_S = 1.0


class NatsCallbacks:
    """Asks anew each time: only a wake that names a callback does."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def flaw(self, url: str) -> str:
        question = json.dumps({"url": url}).encode()
        try:
            told = json.loads(await self._link.request(subjects.CALLBACK, question, timeout_s=ANSWER_WITHIN_S))
        except (Failure, ValueError):
            return ""
        flaw = told.get("flaw") if isinstance(told, dict) else None
        return flaw if isinstance(flaw, str) else ""
