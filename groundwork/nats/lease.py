"""Owners of a role on the bus, each with a record in a key-value bucket, which it renews by compare-and-swap.

A role has one owner, or several members, each under a key of its own (`agent.store_…`). A record that was not renewed
for its `ttl_s`, by the server's clock, is anybody's; a store's own is its own at once, for the lock on the store lets
one process have it. The owner counts from before it asked, by a clock that goes on while the machine sleeps: it knows
its lease to have lapsed before another may have it. Members rest on nothing that a record says of another.
"""

import asyncio
import base64
import contextlib
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Self

from groundwork.nats.buckets import replaced
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import NotThere
from groundwork.service.errors import Failure, Misconfigured, TryAgain, causes
from groundwork.service.json_log import Outage
from groundwork.service.machine import this, utc_now
from groundwork.service.store_folder import store_id

ASK_WITHIN_S = 2.0
RENEWALS = 3
AGAIN_S = 0.5
"""When a renewal that failed is tried again."""
SAFE = 0.9
"""Of its time the owner trusts a lease: clocks may differ in how fast they go."""
LEAVE_AFTER = 0.6
"""For which part of its ttl a server may renew nothing before another is asked: it may be cut off from the others."""
LOOK_S = 0.1
TRIES = 3
PATIENCE_S = 1.0
"""How long an attempt that failed speaks for those who ask after it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What is owned: `key` of `bucket`. `command` is what a person starts to take it over."""

    bucket: str
    key: str
    command: str

    @property
    def subject(self) -> str:
        return f"$KV.{self.bucket}.{self.key}"

    def __str__(self) -> str:
        return f"{'an' if self.key[0] in 'aeiou' else 'a'} {self.key}"

    def of_member(self, name: str) -> "Role":
        return replace(self, key=f"{self.key}.{name}", command="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The record. `holder` is the id of a store, `since` an instant (ISO 8601); `epoch` counts the changes of hands."""

    holder: str
    host: str
    pid: int
    store: str
    since: str
    ttl_s: float
    epoch: int = 0
    released: bool = False

    @classmethod
    def here(cls, store: Path, *, ttl_s: float) -> Self:
        """This process, with the store in an existing folder. Raises OSError."""
        since = utc_now().isoformat(timespec="milliseconds")
        host, place = socket.gethostname(), str(store.absolute())
        return cls(holder=store_id(store), host=host, pid=os.getpid(), store=place, since=since, ttl_s=ttl_s)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} with the store {self.store}, since {self.since}"

    def body(self) -> bytes:
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An owner as the bus has it. `age_s` is since `renewed_at`, both by the server's clock."""

    owner: Owner
    seq: int
    renewed_at: datetime
    age_s: float

    @property
    def free(self) -> bool:
        return self.owner.released or self.age_s >= self.owner.ttl_s


async def look(link: NatsLink, role: Role) -> Record | None:
    """Who has the role, or had it last. Raises TryAgain, or Misconfigured where the bucket is missing or unreadable."""
    wanted = {"last_by_subj": role.subject}
    try:
        found, stream = await asyncio.gather(
            link.ask_jetstream(f"STREAM.MSG.GET.KV_{role.bucket}", wanted, timeout_s=ASK_WITHIN_S),
            link.ask_jetstream(f"STREAM.INFO.KV_{role.bucket}", timeout_s=ASK_WITHIN_S),  # for the server's time
        )
        message = found["message"]
        owner = Owner(**json.loads(base64.b64decode(message["data"])))
        at = datetime.fromisoformat(message["time"])
        age_s = (datetime.fromisoformat(stream["ts"]) - at).total_seconds()
        return Record(owner=owner, seq=message["seq"], renewed_at=at, age_s=max(0.0, age_s))
    except NotThere:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise Misconfigured(
            f"the lease {role.key} in the bucket {role.bucket} is not a record of ours: remove it with"
            f" `nats kv del {role.bucket} {role.key}`"
        ) from error


async def look_at_all(link: NatsLink, role: Role) -> list[Record]:
    wanted = {"subjects_filter": f"{role.subject}.*"}
    info = await link.ask_jetstream(f"STREAM.INFO.KV_{role.bucket}", wanted, timeout_s=ASK_WITHIN_S)
    held = (info.get("state") or {}).get("subjects") or {}
    roles = (replace(role, key=subject.removeprefix(f"$KV.{role.bucket}.")) for subject in sorted(held))
    return [record for one in roles if (record := await look(link, one))]


class Held(Misconfigured):
    """Another has the lease and renews it."""


class Taken(Misconfigured):
    """Another has taken the lease over: this process must not act on the bus any more."""


class Lease:
    def __init__(self, link: NatsLink, role: Role, owner: Owner, *, clock: Callable[[], float] | None = None) -> None:
        self._link = link
        self._role = role
        self._owner = owner
        self._clock = clock or this().uptime
        self._seq = 0
        self._until = self._renewed_at = float("-inf")
        self._taken: str = ""
        self._failed: tuple[float, str] = (float("-inf"), "")
        self._asking = asyncio.Lock()

    @property
    def epoch(self) -> int:
        return self._owner.epoch

    @property
    def trouble(self) -> str:
        return self._taken or (f"the lease of the {self._role.key} has lapsed" if self._has_lapsed else "")

    @property
    def _has_lapsed(self) -> bool:
        return self._clock() >= self._until

    async def acquire(self, *, take_over: bool = False) -> Record | None:
        """Wait for the lease; returns its owner before. Raises Held where another renews it, unless told to
        `take_over`."""
        waits_for: Record | None = None
        while True:
            seen = await look(self._link, self._role)
            if seen is None or take_over or seen.free or seen.owner.holder == self._owner.holder:
                if await self._take(seen):
                    return seen
                continue
            if waits_for is None:
                waits_for = seen
                log.info("waiting: another may have the lease", extra={"lease": self._role.key, **asdict(seen.owner)})
            elif waits_for.seq != seen.seq:
                raise Held(
                    f"this bus has its {self._role.key} already: {seen.owner}; renewed {seen.age_s:.1f} s ago, expires "
                    f"{seen.owner.ttl_s:g} s after that. Stop that process, or start this one with its store, or take "
                    f"its place: `{self._role.command} --take-over`"
                )
            await asyncio.sleep(LOOK_S)

    async def held(self) -> None:
        """Returns while the lease is ours for sure, perhaps after a renewal: one attempt for all who ask at the same
        time. Raises Taken, or TryAgain while that cannot be known."""
        if self._taken:
            raise Taken(self._taken)
        if self._has_lapsed:
            async with self._asking:
                if self._has_lapsed:
                    at, why = self._failed
                    if self._clock() - at < PATIENCE_S:
                        raise TryAgain(why)
                    await self._renew()

    async def keep(self) -> None:
        """Renews it for ever, by another server where this one does not. Raises Taken."""
        ttl_s, outage = self._owner.ttl_s, Outage(f"the lease of the {self._role.key}", log)
        while True:
            await asyncio.sleep(AGAIN_S if outage.why else ttl_s / RENEWALS)
            async with self._asking:
                try:
                    await self._renew()
                    outage.over()
                except TryAgain as error:
                    outage.goes_on(str(error))
                    if self._link.connected and self._clock() - self._renewed_at > LEAVE_AFTER * ttl_s:
                        await self._link.go_elsewhere()

    async def release(self) -> None:
        """Let the next have it at once. Not being able to is no error: it expires."""
        async with self._asking:
            if not self._taken:
                released = replace(self._owner, released=True)
                with contextlib.suppress(Failure):
                    await replaced(self._link, self._role.bucket, self._role.key, released.body(), after=self._seq)
            self._taken = self._taken or "released"

    async def _take(self, seen: Record | None) -> bool:
        self._owner = replace(self._owner, epoch=seen.owner.epoch + 1 if seen else 1)
        self._seq = seen.seq if seen else 0
        return await self._swapped()

    async def _renew(self) -> None:
        why: object = "it keeps changing"
        for _ in range(TRIES):
            try:
                if await self._swapped():
                    return
                await self._learn_who_has_it()
            except TryAgain as error:
                why = error
                break
        told = f"the lease of the {self._role.key} has lapsed, and the bus cannot be asked who has it: {why}"
        self._failed = (self._clock(), told)
        raise TryAgain(told)

    async def _swapped(self) -> bool:
        """False where another record is newer."""
        asked_at = self._clock()
        seq = await replaced(self._link, self._role.bucket, self._role.key, self._owner.body(), after=self._seq)
        if seq is not None:
            self._seq, self._renewed_at, self._until = seq, asked_at, asked_at + self._owner.ttl_s * SAFE
        return seq is not None

    async def _learn_who_has_it(self) -> None:
        """An earlier try of ours may have been stored without a word, and a bus may have lost its newest records."""
        seen = await look(self._link, self._role)
        if seen and seen.owner != self._owner and seen.owner.epoch >= self._owner.epoch:
            self._taken = (
                f"another {self._role.key} has taken this bus over: {seen.owner}. This process ends and does nothing "
                f"more; to have the bus back: `{self._role.command} --take-over`"
                if self._role.command
                else f"the others took {self._role.key} for dead: it was not heard of for {seen.owner.ttl_s:g} s"
            )
            raise Taken(self._taken)
        self._seq = seen.seq if seen else 0


@contextlib.asynccontextmanager
async def hold(lease: Lease, link: NatsLink, *, take_over: bool = False) -> AsyncIterator[Record | None]:
    """Nothing leaves by `link` without the lease. Yields who had it before. Raises Held; and Taken, in an
    ExceptionGroup."""
    before = await lease.acquire(take_over=take_over)
    link.guard_by(lease.held)
    try:
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(lease.keep())
            yield before
            keeping.cancel()
    finally:
        await lease.release()


def may_join_anew(ended: BaseException) -> bool:
    """Whether a member ended because its record was taken from it, or the bus did not answer while it joined."""
    why = list(causes(ended))
    taken = any(isinstance(cause, Taken) for cause in why)
    return all(isinstance(cause, Failure if taken else TryAgain) for cause in why)
