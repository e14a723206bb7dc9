"""Checks of who owns the bus: one agent and one gateway at a time."""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from agent_service.bus.topology import ROLE
from agent_service.cli.doctor.check import Check, ok, warning, wrong
from agent_service.cli.show import seconds
from groundwork.nats.lease_record import Record, Role, look
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure
from groundwork.service.store_id import known_id
from schemas import subjects

GATEWAY = Role(bucket=subjects.LEASE_BUCKET, key=subjects.LEASE_GATEWAY, command="ductile-gateway serve")


async def leases(link: NatsLink, store: Path) -> AsyncIterator[Check]:
    """`store` is that of the agent that is configured."""
    for role in (ROLE, GATEWAY):
        name = f"{role.key} lease"
        try:
            record = await look(link, role)
        except Failure as error:
            yield wrong(name, str(error), remedy="run `agentic setup`, or give this login the permission")
            continue
        if role is ROLE and _is_strangers(record, store):
            yield warning(
                name,
                f"held by an agent with another store than {store}: {_told(record)}",
                remedy=f"stop that one, use its store, or take its place: `{role.command} --take-over`",
            )
        else:
            yield ok(name, _told(record))


def _is_strangers(record: Record | None, store: Path) -> bool:
    own = ""
    with contextlib.suppress(OSError):  # that it cannot be read is told by another check
        own = known_id(store)
    return record is not None and not record.free and record.owner.holder != own


def _told(record: Record | None) -> str:
    if record is None:
        return "nobody has had it yet"
    ago = seconds(timedelta(seconds=record.age_s))
    if record.free:
        how = "given back" if record.owner.released else "not renewed"
        return f"free: {how} {ago} ago by {record.owner}"
    return f"{record.owner}, renewed {ago} ago, epoch {record.owner.epoch}"
