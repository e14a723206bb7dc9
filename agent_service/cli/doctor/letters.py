"""Checks whether messages lie there that could not be handled, and that nobody has dealt with."""

from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.cli.doctor.check import Check, ok, warning
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure


async def dead_letters(link: NatsLink) -> Check:
    """Those of both services. They are somebody else's work that was not done, so they are a warning."""
    try:
        waiting = [letter for letter in await NatsDeadLetters(link).all() if not letter.settled]
    except Failure as error:
        return warning("dead letters", str(error), remedy="give this login the permission, or ask again later")
    if waiting:
        newest = waiting[-1].subject[:80]
        text = f"{len(waiting)} messages could not be handled, the newest of them on {newest}"
        return warning("dead letters", text, remedy="see `agentic dlq ls`, then retry or drop each")
    return ok("dead letters", "there are none that wait for anybody")
