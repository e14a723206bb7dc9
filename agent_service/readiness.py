"""Readiness: what is wrong with each thing that the agent needs."""

from collections.abc import Awaitable

from agent_service.admission.capacity import Room
from agent_service.bus.messages import NatsIntake
from agent_service.kill_switch import Brake
from agent_service.run.model_calls import Thinker
from agent_service.run.ports import Archive, Skills
from groundwork.nats.connection import Needs
from groundwork.nats.leases.lease import Lease
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Fatal, TryAgain
from schemas.permissions import indispensable

_MAY = indispensable("agent")
NEEDS = Needs(_MAY.publish, _MAY.subscribe, "give it the permissions of the role agent (docs/BUS.md, Permissions)")


async def readiness(
    intake: NatsIntake,
    lease: Lease,
    link: NatsLink,
    archive: Archive,
    skills: Skills,
    thinker: Thinker,
    brake: Brake,
    room: Room,
) -> dict[str, str]:
    """By the name of each thing; empty texts when all is well."""
    return {
        "bus": intake.trouble or lease.trouble or NEEDS.unmet(link.denials),
        "store": await wrong_with(archive.counts()),
        "skills": await wrong_with(skills.catalog()),
        "model": thinker.trouble,
        "halt": brake.holds,
        "room": room.trouble,
    }


async def wrong_with(question: Awaitable[object]) -> str:
    try:
        await question
    except (TryAgain, Fatal) as error:
        return str(error)
    return ""
