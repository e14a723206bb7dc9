"""What operators ask, answered without a bus: no message is on it, and no gateway there."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from agent_service.api.app import Operations
from agent_service.api.desk import Switch
from agent_service.api.handlers.dead_letters import DeadLetterCalls
from agent_service.api.handlers.inbox import InboxCalls
from agent_service.api.handlers.inspection import Inspection, WhyCalls
from agent_service.api.handlers.operating import DrainCalls, PruneCalls, StoppingCalls
from agent_service.api.handlers.service import HealthCalls
from agent_service.api.handlers.tools import ToolCalls
from agent_service.archive.pruning import Pruning
from agent_service.archive.retention import Beside
from agent_service.kill_switch import Draining
from agent_service.models.prompts.prompt import as_text
from agent_service.run.ports import Archive, Clock, Skills
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.answers.why import Whereabouts
from schemas.status import GatewayStatus
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
