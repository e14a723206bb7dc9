"""Whether the agent can work now: what is wrong with each thing that it needs."""

from collections.abc import Awaitable

from agent_service.brake import Brake
from agent_service.bus.messages import NatsIntake
from agent_service.ports import Archive, Skills
from agent_service.thinker import Thinker
from groundwork.nats.lease import Lease
from groundwork.service.errors import Fatal, TryAgain


async def readiness(
    intake: NatsIntake, lease: Lease, archive: Archive, skills: Skills, thinker: Thinker, brake: Brake
) -> dict[str, str]:
    """By the name of each thing; empty texts when all is well."""
    return {
        "bus": intake.trouble or lease.trouble,
        "store": await wrong_with(archive.counts()),
        "skills": await wrong_with(skills.catalog()),
        "model": thinker.trouble,
        "halt": brake.why,
    }


async def wrong_with(question: Awaitable[object]) -> str:
    """Why it brings no answer; empty when it does."""
    try:
        await question
    except (TryAgain, Fatal) as error:
        return str(error)
    return ""
