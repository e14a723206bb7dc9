"""The queue of turns of several agents that share a store.

Nothing waits in memory: a postponed turn fails, so that its message is redelivered.
"""

import json
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from math import ceil

from agent_service.background import Background
from agent_service.run.inbound import CURRENT_MESSAGE, turn_id
from agent_service.run.journal import Commit
from agent_service.run.queued_turns import FORGOTTEN_AT, RUN_ID
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, TryAgain
from schemas import subjects
from schemas.envelope import MSG_ID

TOGETHER_S = 2
"""Outages that several agents notice within this time are one, so no second one may fall into it: an agent notices its
own start, too."""
AGAIN_S = 1.0


class TurnQueue:
    """Fills the port Dispatching: an unacknowledged message stands for effects that are not done."""

    def __init__(self, link: NatsLink, background: Background) -> None:
        self._link = link
        self._background = background

    @property
    def performs_here(self) -> bool:
        """True if this task handles a message; otherwise the turn is queued."""
        return CURRENT_MESSAGE.get() is not None

    def committed(self, change: Commit) -> None:
        if CURRENT_MESSAGE.get() is None or change.before is None:
            run_id = change.entry.run_id
            self._background.start(self.put(run_id, turn_id(run_id, change.entry.seq)))

    async def put(self, run_id: str, turn: str) -> None:
        """Raises TryAgain."""
        await self._put({RUN_ID: run_id}, turn)

    async def republish(self, forgotten_at: datetime) -> None:
        """Has one agent publish again what the bus may have lost. Raises TryAgain."""
        until = datetime.fromtimestamp(ceil(forgotten_at.timestamp() / TOGETHER_S) * TOGETHER_S, UTC)
        await self._put({FORGOTTEN_AT: until.isoformat()}, f"say-again:{until.timestamp():.0f}")

    async def _put(self, request: dict[str, str], name: str) -> None:
        try:
            await self._link.store(subjects.TURN, json.dumps(request).encode(), {MSG_ID: name})
        except Failure as error:
            raise TryAgain(f"turn {name} is not queued: {error}") from error

    def begin(self, run_id: str, seqs: Iterable[int]) -> None: ...

    def done(self, run_id: str, seqs: Iterable[int]) -> None: ...

    def postpone(self, run_id: str, seqs: Collection[int], error: TryAgain | None = None) -> None:
        """Raises an error, so that the message is redelivered."""
        raise error or TryAgain(f"run {run_id}: what entry {max(seqs)} asks for is not done", AGAIN_S)
