"""Whether a run has ended, asked of the agent over the bus. Fills the port Runs."""

import json

from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure
from schemas import subjects

ANSWER_WITHIN_S = 1.0
ENDED = frozenset({"done", "escalated", "failed", "cancelled"})


class NatsRuns:
    """Asks anew each time."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def has_ended(self, run_id: str) -> bool | None:
        question = json.dumps({"run_id": run_id}).encode()
        try:
            told = json.loads(await self._link.request(subjects.RUN_STATUS, question, timeout_s=ANSWER_WITHIN_S))
        except Failure:  # no agent, or none that may be asked
            return None
        except ValueError:  # an agent that does not know the run
            return False
        return isinstance(told, dict) and told.get("state") in ENDED
