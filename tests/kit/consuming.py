"""Consumes a durable consumer by the pull loop, with a handler and a place for dead letters."""

from groundwork.nats.consuming.pull_loop import PullLoop
from groundwork.nats.consuming.settling import DeadLetters, Handler, Settling
from groundwork.nats.link import NatsLink


async def consume(
    link: NatsLink,
    stream: str,
    durable: str,
    *,
    slots: int,
    handler: Handler,
    dead_letter: DeadLetters,
    in_progress_s: float,
    sole: bool = True,
) -> None:
    settling = Settling(link, stream, durable, handler, dead_letter)
    await PullLoop(settling, slots=slots, in_progress_s=in_progress_s, sole=sole).run()
