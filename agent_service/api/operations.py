"""What operators ask beyond waking, watching and cancelling runs: who answers it."""

from dataclasses import dataclass

from agent_service.api.dead_letters import DeadLetterCalls
from agent_service.api.draining import DrainCalls
from agent_service.api.health import HealthCalls
from agent_service.api.inbox import InboxCalls
from agent_service.api.inspection import Inspection
from agent_service.api.pruning import PruneCalls
from agent_service.api.stopping import StoppingCalls
from agent_service.api.tools import ToolCalls
from agent_service.api.why import WhyCalls


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    inspection: Inspection
    inbox: InboxCalls
    letters: DeadLetterCalls
    health: HealthCalls
    why: WhyCalls
    stopping: StoppingCalls
    draining: DrainCalls
    pruning: PruneCalls
    tools: ToolCalls
