"""Effects out: every message that leaves the agent goes through here, after its commit."""

from agent_service.core.effects import Publish
from agent_service.ports import Bus, Clock
from agent_service.trace import trace_id
from schemas import headers

SOURCE = "/agentic-loop/agent"


class Outbox:
    """Publishes effects under their keys; doing it twice is harmless."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock

    async def publish(self, run_id: str, effect: Publish) -> None:
        """Put `effect` on the bus. Raises TryAgain when the bus did not take it within its retry budget."""
        described = headers.of_event(
            effect.subject,
            dedupe_key=effect.key,
            source=SOURCE,
            at=f"{self._clock.now().replace(tzinfo=None).isoformat()}Z",
            run_id=run_id,
            trace_id=trace_id(run_id),
        )
        if effect.rebuildable:
            await self._bus.tell(effect.subject, effect.body.encode(), key=effect.key, headers=described)
        else:
            await self._bus.publish(effect.subject, effect.body.encode(), key=effect.key, headers=described)
