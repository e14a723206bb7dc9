"""Frame: the goal as an objective, with the items that say when it is reached."""

from datetime import datetime

from agent_service.core.asking import ask
from agent_service.core.effects import Transition
from agent_service.core.endings import after_progress
from agent_service.core.phases import Framing, Next, Phase, Unusable
from agent_service.core.planning import take_next
from agent_service.core.replacing import replace
from agent_service.core.state import DoneItem, RunState


def take_framing(state: RunState, framing: Framing, plan: Next | Unusable | None, *, at: datetime) -> Transition:
    items = tuple(DoneItem(id=f"d{n}", text=text) for n, text in enumerate(framing.definition_of_done, start=1))
    framed = replace(state, framing=framing, done_items=items, summary=f"framed: {framing.goal_statement}")
    then = ask(framed, Phase.PLAN, at=at) if plan is None else take_next(framed, plan, (), at=at)
    return after_progress(framed, "frame", framed.summary, then)
