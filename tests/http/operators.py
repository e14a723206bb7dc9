"""What operators ask, answered without a bus: no message is on it, and no gateway there."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from agent_service.api.dead_letters import DeadLetterCalls
from agent_service.api.draining import DrainCalls
from agent_service.api.health import HealthCalls
from agent_service.api.inbox import InboxCalls
from agent_service.api.inspection import Inspection
from agent_service.api.operations import Operations
from agent_service.api.pruning import PruneCalls
from agent_service.api.stopping import StoppingCalls
from agent_service.api.switch import Switch
from agent_service.api.tools import ToolCalls
from agent_service.api.why import WhyCalls
from agent_service.draining import Draining
from agent_service.models.prompts.prompt import as_text
from agent_service.ports import Archive, Clock, Skills
from agent_service.pruning import Pruning
from agent_service.retention import Beside
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.whereabouts import Whereabouts
from schemas.gateway_status import GatewayStatus
from tests.kit.letterbox import Letterbox

Readiness = Callable[[], Awaitable[Mapping[str, str]]]


class Nowhere:
    """A bus that has no message. Fills the port Finder."""

    async def of(self, stream: str, subject: str, key: str, since: datetime) -> Whereabouts | None:
        del stream, subject, key, since
        return None


class NothingBeside:
    """No dead letters, and no gateway. Fills BesideRuns."""

    async def prune(self, *, dry_run: bool) -> Beside:
        del dry_run
        return Beside(trouble="no gateway answers")


async def no_gateway() -> GatewayStatus | None:
    return None


def operators(
    store: SqliteStore,
    archive: Archive,
    letters: Letterbox,
    readiness: Readiness,
    skills: Skills,
    clock: Clock,
    switch: Switch,
    draining: Draining,
    pruning: Pruning,
) -> Operations:
    """All of it; `readiness` is what the agent finds of itself."""
    return Operations(
        inspection=Inspection(store, archive, as_text),
        inbox=InboxCalls(store, store.inbox, letters, now=clock.now),
        letters=DeadLetterCalls(letters),
        health=HealthCalls(readiness, {}),
        why=WhyCalls(store, store.inbox, Nowhere(), letters, skills, no_gateway, readiness),
        stopping=StoppingCalls(switch),
        draining=DrainCalls(draining),
        pruning=PruneCalls(pruning, NothingBeside()),
        tools=ToolCalls(skills),
    )
