"""Processes that share a role on the bus: each has a record of its own, which it renews as a lease.

Nothing that they do rests on who else there is: a record says who is at work, and is taken from a process by whoever
has to know that it does nothing more.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

from groundwork.nats.leases.lease import RENEWALS, Lease, Owner, Role, Taken, hold, look, look_at_all
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, Misconfigured, TryAgain, causes

LEAVE_AFTER, LEAVE_AGAIN_AFTER = 0.5, 1.5
"""For which part of its ttl a process goes on asking a server that does not renew its record, before it asks another:
it may be cut off from the others, which its clients do not see. The next one is given longer: on a busy machine a
renewal takes more than a second, and each change ends the one that is under way."""

log = logging.getLogger(__name__)


def member_role(role: Role, name: str) -> Role:
    return replace(role, key=f"{role.key}.{name}", command="")


async def refuse_members(link: NatsLink, role: Role) -> None:
    """For a process that wants the whole role. Raises Misconfigured where others share it, and TryAgain."""
    for record in await look_at_all(link, role):
        if not record.free:
            raise Misconfigured(
                f"this bus has {_one(role)} whose store is shared: {record.owner}. Stop those, or set "
                f"`{role.key}.store: jetstream` here, too"
            )


@contextlib.asynccontextmanager
async def joined(link: NatsLink, role: Role, owner: Owner) -> AsyncIterator[Lease]:
    """Nothing leaves by `link` without this lease. Raises TryAgain, Misconfigured where a process has the whole role;
    and Taken, in an ExceptionGroup."""
    lease = Lease(link, member_role(role, owner.holder), owner)
    async with hold(lease, link), asyncio.TaskGroup() as group:
        alone = await look(link, role)
        if alone and not alone.free:
            raise Misconfigured(
                f"this bus has {_one(role)} that shares nothing: {alone.owner}. Stop it, and move what it "
                "keeps: docs/OPERATIONS.md, From one agent to several; or stay with it"
            )
        leaving = group.create_task(_leave_a_silent_server(link, lease, owner.ttl_s))
        try:
            yield lease
        finally:
            leaving.cancel()


def may_join_anew(ended: BaseException) -> bool:
    """Whether a member ended because its record was taken from it, or the bus did not answer while it joined."""
    why = list(causes(ended))
    taken = any(isinstance(cause, Taken) for cause in why)
    return all(isinstance(cause, Failure if taken else TryAgain) for cause in why)


async def _leave_a_silent_server(link: NatsLink, lease: Lease, ttl_s: float) -> None:
    patience = LEAVE_AFTER
    while True:
        await asyncio.sleep(ttl_s / RENEWALS / 2)
        if lease.age_s <= LEAVE_AFTER * ttl_s:
            patience = LEAVE_AFTER
        elif lease.age_s > patience * ttl_s and link.connected:
            patience = lease.age_s / ttl_s + LEAVE_AGAIN_AFTER - LEAVE_AFTER
            log.info("asking another server: this one renews nothing", extra={"lease": lease.key})
            await link.go_elsewhere()


def _one(role: Role) -> str:
    return f"{'an' if role.key[0] in 'aeiou' else 'a'} {role.key}"
