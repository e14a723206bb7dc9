"""How the bus is: checks that change nothing, for `agentic doctor` and for the agent's own health."""

from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.bus.gateway import NatsTroubles
from agent_service.telling.findings import ok, warning, wrong
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure
from schemas.gateway_status import Finding

OLDEST_SERVER = (2, 14, 0)
SMALLEST_PAYLOAD = 1 << 20
ANSWER_WITHIN_S = 2.0


def server(link: NatsLink) -> Finding:
    text = f"nats-server {link.server_version} at {link.servers}"
    if tuple(map(int, link.server_version.split("."))) < OLDEST_SERVER:
        return wrong("nats", text, remedy="install nats-server 2.14 or newer")
    if link.max_payload < SMALLEST_PAYLOAD:
        remedy = f"set max_payload to {SMALLEST_PAYLOAD} on the server: larger results would be refused"
        return warning("nats", f"{text}, messages of at most {link.max_payload} bytes", remedy=remedy)
    return ok("nats", text)


async def jetstream(link: NatsLink) -> Finding:
    try:
        await link.request("$JS.API.INFO", b"", timeout_s=ANSWER_WITHIN_S)
    except Failure as error:
        why = link.violation or str(error)
        return wrong(
            "jetstream", f"JetStream does not answer: {why}", remedy="enable it: `jetstream {}` in the server's file"
        )
    return ok("jetstream", "JetStream answers")


async def dead_letters(letters: NatsDeadLetters) -> Finding:
    try:
        waiting = [letter for letter in await letters.all() if not letter.settled]
    except Failure as error:
        return warning("dead letters", str(error), remedy="give this login the permission, or ask again later")
    if waiting:
        newest = waiting[-1].subject[:80]
        text = f"{len(waiting)} messages could not be handled, the newest of them on {newest}"
        return warning("dead letters", text, remedy="see `agentic dlq ls`, then retry or drop each")
    return ok("dead letters", "there are none that wait for anybody")


async def gateway(troubles: NatsTroubles) -> tuple[Finding, ...]:
    status = await troubles.status()
    if status is None:
        return (wrong("gateway", "no gateway says how it is", remedy="start `ductile-gateway serve`"),)
    return status.findings
