"""Where a run wants its ending sent, asked of the agent over the bus: no event says it. Fills the port Callbacks."""

import json

from ductile_gateway.errors import TryAgain
from groundwork.nats.errors import BusError
from groundwork.nats.link import NatsLink
from schemas import subjects

ANSWER_WITHIN_S = 2.0
ASK_AGAIN_S = 2.0


class NatsCallbacks:
    """Asks anew each time."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def of(self, run_id: str) -> str | None:
        question = json.dumps({"run_id": run_id}).encode()
        try:
            told = json.loads(await self._link.request(subjects.RUN_CALLBACK, question, timeout_s=ANSWER_WITHIN_S))
            callback = told["callback"]
        except (BusError, ValueError, KeyError, TypeError) as error:  # no agent, or one that cannot say it now
            raise TryAgain(f"no agent says where run {run_id} wants its ending sent", ASK_AGAIN_S) from error
        return callback if isinstance(callback, str) else None
