"""Processes that share a role on the bus: which of them live, and which sees to the work of one that is gone.

Each renews a record of its own as a lease; renewals are heard over core NATS. A member whose own renewals got through
takes the record of a silent one (compare-and-swap) once it has expired by the server's clock: that one then publishes
nothing any more (see lease). The heir is found by rendezvous hashing; while views differ, two may take themselves for
it.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, replace

from nats.aio.msg import Msg

from groundwork.nats.leases.lease import RENEWALS, Lease, Owner, Record, Role, Taken, hold, look, look_at_all
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Refused
from groundwork.service.errors import Failure, Misconfigured, TryAgain, causes
from groundwork.service.machine import monotonic

LEAVE_AFTER, LEAVE_AGAIN_AFTER = 0.5, 1.0
"""For which part of its ttl a process goes on asking a server that does not renew its record, before it asks another:
it may be cut off from the others, which its clients do not see. The next one is given longer: on a busy machine a
renewal takes more than a second, and each change ends the one that is under way."""
SURE_AFTER = 0.5
"""For which part of its ttl a process must have renewed its own record without a break, before it judges others."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Renewal:
    """What is known of another member: its record, and when it was heard at last."""

    owner: Owner
    at: float


class Members:
    """Those of `role`, as the process sees them whose record is kept by `lease`."""

    def __init__(
        self, link: NatsLink, role: Role, owner: Owner, lease: Lease, *, now: Callable[[], float] = monotonic
    ) -> None:
        self.me = owner.holder
        self.gone: list[Callable[[str], object]] = []
        """Told of each member that died or left: what it had begun is its heirs'."""
        self._link = link
        self._role = role
        self._owner = owner
        self._lease = lease
        self._now = now
        self._others: dict[str, _Renewal] = {}
        self._ended: dict[str, int] = {}
        """Of members that are gone, the epoch of their ends: what they still try is none of their renewals."""
        self._in_doubt: set[str] = set()
        """Of whom something was heard that only their record can tell."""
        self._sure_since, self._left_at = now(), -math.inf

    @property
    def live(self) -> frozenset[str]:
        return frozenset(self._others) | {self.me}

    @property
    def who(self) -> dict[str, str]:
        return {name: str(seen.owner) for name, seen in self._others.items()}

    @property
    def trouble(self) -> str:
        return self._lease.trouble

    def heir(self, key: str) -> str:
        """Who of the living sees to what is called `key`, where it is nobody's."""
        return max(self.live, key=lambda member: hashlib.blake2b(f"{member}\n{key}".encode()).digest())

    def mine(self, owner: str, key: str) -> bool:
        """Whether what is `owner`'s is to be seen to here: ours, or left by one who is gone (empty: by nobody)."""
        return owner == self.me or (owner not in self.live and self.heir(key) == self.me)

    async def meet(self) -> None:
        """Learn who else there is. Raises TryAgain, and Misconfigured where a process has the whole role for itself."""
        await self._link.subscribe(f"{self._role.subject}.*", self._on_renewal)
        alone = await look(self._link, self._role)
        if alone and not alone.free:
            raise Misconfigured(
                f"this bus has {_one(self._role)} that shares nothing: {alone.owner}. Stop it, and move what it "
                "keeps: docs/OPERATIONS.md, From one agent to several; or stay with it"
            )
        for record in await look_at_all(self._link, self._role):
            if not record.owner.released and record.owner.holder != self.me:
                self._others.setdefault(record.owner.holder, _Renewal(record.owner, self._now()))

    async def keep(self) -> None:
        while True:
            await asyncio.sleep(self._owner.ttl_s / RENEWALS / 2)
            if self._lease.age_s > 2 * self._owner.ttl_s / RENEWALS:
                self._sure_since = self._now()
                await self._ask_another()
            elif self._now() - self._sure_since >= SURE_AFTER * self._owner.ttl_s:
                with contextlib.suppress(TryAgain):
                    await self._look_for_silent()

    async def _ask_another(self) -> None:
        since, ttl_s = self._now() - self._left_at, self._owner.ttl_s
        if self._lease.age_s > LEAVE_AFTER * ttl_s and since > LEAVE_AGAIN_AFTER * ttl_s and self._link.connected:
            self._left_at = self._now()
            log.info("asking another server: this one renews nothing", extra={"lease": self._role.key})
            await self._link.go_elsewhere()

    async def _on_renewal(self, message: Msg) -> None:
        try:
            owner = Owner(**json.loads(message.data))
        except (ValueError, TypeError):  # not one of ours: whoever looks at the record says so
            return
        name, known = message.subject.rpartition(".")[2], self._others.get(owner.holder)
        if name in (self.me, "") or owner.holder != name:
            return
        if not owner.released and owner.epoch > self._ended.get(name, -1):
            self._lives(owner, at=self._now())
        elif owner.released and known and known.owner.epoch == owner.epoch:
            self._is_gone(name, owner.epoch)  # by its own word
        else:
            self._in_doubt.add(name)

    async def _look_for_silent(self) -> None:
        now = self._now()
        silent = {name for name, seen in self._others.items() if now - seen.at > seen.owner.ttl_s}
        for name in silent | self._in_doubt:
            self._in_doubt.discard(name)
            await self._judge(name)

    async def _judge(self, name: str) -> None:
        role, asked_at = member_role(self._role, name), self._now()
        record = await look(self._link, role)
        known = self._others.get(name)
        if record and known and known.at > asked_at and known.owner.epoch > record.owner.epoch:
            return  # it has just come back
        if record is None or record.owner.released:
            self._is_gone(name, record.owner.epoch if record else 0)
        elif record.age_s >= record.owner.ttl_s:
            if await self._taken(role, record):
                log.warning("a member is gone", extra={"role": self._role.key, "who": str(record.owner)})
                self._is_gone(name, record.owner.epoch + 1)
        else:
            self._ended.pop(name, None)
            self._lives(record.owner, at=self._now() - record.age_s)

    async def _taken(self, role: Role, record: Record) -> bool:
        ended = replace(record.owner, epoch=record.owner.epoch + 1, released=True)
        try:
            await self._link.swap(role.subject, json.dumps(asdict(ended)).encode(), after=record.seq)
        except Refused:
            return False
        return True

    def _lives(self, owner: Owner, *, at: float) -> None:
        if owner.holder not in self._others:
            facts = {"role": self._role.key, "member": owner.holder, "who": str(owner)}
            log.info("another member", extra=facts)
        self._others[owner.holder] = _Renewal(owner, at)

    def _is_gone(self, name: str, epoch: int) -> None:
        self._ended[name] = epoch
        if self._others.pop(name, None):
            for told in self.gone:
                told(name)


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
async def joined(link: NatsLink, role: Role, owner: Owner) -> AsyncIterator[tuple[Members, Lease]]:
    """Nothing leaves by `link` without membership. Raises as `Members.meet`; and Taken, in an ExceptionGroup."""
    lease = Lease(link, member_role(role, owner.holder), owner)
    async with hold(lease, link), asyncio.TaskGroup() as group:
        members = Members(link, role, owner, lease)
        await members.meet()
        keeping = group.create_task(members.keep())
        try:
            yield members, lease
        finally:
            keeping.cancel()


def may_join_anew(ended: BaseException) -> bool:
    """Whether a member ended because the others took it for dead, or the bus did not answer while it joined."""
    why = list(causes(ended))
    taken = any(isinstance(cause, Taken) for cause in why)
    return all(isinstance(cause, Failure if taken else TryAgain) for cause in why)


def _one(role: Role) -> str:
    return f"{'an' if role.key[0] in 'aeiou' else 'a'} {role.key}"
