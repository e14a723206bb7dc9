"""What an event paid for the model, once: so that sums over runs and days are those of the journal."""

from agent_service.core.events import Event, ModelReplied, ModelUnavailable
from agent_service.core.state import RunState


def paid_with(before: RunState | None, event: Event, after: RunState) -> float:
    """What the event paid, in USD: the price of a reply, or what counts as spent for one that is lost.

    0 where a price is not known. What children spent is paid with events of theirs.
    """
    if before is None or before.asking is None:
        return 0.0
    if isinstance(event, ModelReplied):
        return event.usage.cost_usd or 0.0
    if isinstance(event, ModelUnavailable) and event.lost:
        return event.lost[1] or 0.0
    reserve, lost = before.reserve, after.spent.lost_calls > before.spent.lost_calls
    if reserve is None or not lost:
        return 0.0
    _, cost = reserve.if_lost or (reserve.tokens, reserve.cost_usd)
    return cost or 0.0
