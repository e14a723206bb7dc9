"""A decision that cannot be used: it is told to the model and asked for again, so often and no more."""

from datetime import datetime

from agent_service.core import endings, notes
from agent_service.core.asking import ask_to_reflect, put, unlooked
from agent_service.core.effects import Transition
from agent_service.core.phases import Phase, Unusable
from agent_service.core.state import RunState
from agent_service.core.waiting import Asking

MAX_REJECTED = 4000


def ask_again(
    state: RunState, asking: Asking, flaws: tuple[str, ...], *, at: datetime, reply: Unusable | None = None
) -> Transition:
    repairs = asking.repairs + 1
    if repairs > state.brief.limits.max_repairs:
        if asking.phase is Phase.COMPACT:
            return ask_to_reflect(notes.compacted(state, state.facts), at)
        reason = f"the model gave no usable {asking.phase} in {repairs} tries: {'; '.join(flaws)}"
        if asking.phase is Phase.VERIFY:
            return unlooked(state, reason, at=at)
        return endings.escalate(state, "invalid_decision", reason, at=at)
    repaired = Asking(
        call=state.calls + 1,
        phase=asking.phase,
        feedback=asking.feedback,
        flaws=flaws,
        rejected=reply.raw[:MAX_REJECTED] if reply else "",
        longer=asking.longer or (reply is not None and reply.cut),
        repairs=repairs,
    )
    return put(state, repaired, at=at)
