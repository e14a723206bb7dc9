"""Leases on a role, each a record in a key-value bucket that its owner renews by compare-and-swap.

A role has one owner, or several members, each under a key of its own (`agent.store_…`). A record that was not renewed
for its `ttl_s`, by the server's clock, is free; a store takes its own lease over at once, because the lock on its
folder admits one process, but not that of a copy. The owner counts its time from before the request, by a clock that
runs while the machine sleeps: it knows that its lease lapsed before another can have it. Members rely on nothing in
the record of another.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from groundwork.nats.buckets import replace_value
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import NoSuchItem, read_stored
from groundwork.service.errors import Failure, Misconfigured, TryAgain
from groundwork.service.json_log import Outage
from groundwork.service.machine import boot_id, this, utc_now
from groundwork.service.store_folder import ID_FILE, store_id

ASK_WITHIN_S = 2.0
RENEWALS = 3
"""Renewals per ttl."""
AGAIN_S = 0.5
"""Pause after a failed renewal."""
SAFE = 0.9
"""Part of the ttl for which the owner trusts its lease: clocks may run at different speeds."""
LEAVE_AFTER = 0.6
"""Part of the ttl after which a server that renewed nothing is left: it may be cut off from the others."""
LOOK_S = 0.1
TRIES = 3
DELETED_TTL_S = 10.0
"""Shortest time in which an owner whose record was deleted (`nats kv del`) has renewed it if it lives."""
PATIENCE_S = 1.0
"""Time for which the result of a failed attempt holds for other callers, too."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """`key` in `bucket`. `command`: a person takes the role over by starting it."""

    bucket: str
    key: str
    command: str

    @property
    def subject(self) -> str:
        return f"$KV.{self.bucket}.{self.key}"

    def __str__(self) -> str:
        return f"{'an' if self.key[0] in 'aeiou' else 'a'} {self.key}"

    def member(self, name: str) -> "Role":
        return replace(self, key=f"{self.key}.{name}", command="")


class Owner(BaseModel):
    """Content of a record. `holder`: id of a store; empty if the record was deleted. `since`: ISO 8601. `epoch` counts
    the changes of hands."""

    model_config = ConfigDict(frozen=True, defer_build=True)
    holder: str
    host: str
    pid: int
    store: str
    since: str
    ttl_s: float
    boot: str = ""
    epoch: int = 0
    released: bool = False

    @classmethod
    def here(cls, store: Path, *, ttl_s: float) -> Self:
        """This process, with the store in an existing folder. Raises OSError."""
        since = utc_now().isoformat(timespec="milliseconds")
        host, place, boot = socket.gethostname(), str(store.absolute()), boot_id()
        return cls(holder=store_id(store), host=host, pid=os.getpid(), store=place, since=since, ttl_s=ttl_s, boot=boot)

    @classmethod
    def deleted(cls, seq: int) -> Self:
        """No epoch before was as high as the sequence of the deletion."""
        return cls(holder="", host="", pid=0, store="", since="", ttl_s=DELETED_TTL_S, epoch=seq)

    def __str__(self) -> str:
        if not self.holder:
            return "a process whose record was deleted"
        return f"process {self.pid} on {self.host} with the store {self.store}, since {self.since}"

    @property
    def folder(self) -> tuple[str, ...]:
        """The store, and the machine that has it."""
        return self.holder, self.store, self.host, self.boot


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """`age_s` is the time since `renewed_at`, both by the server's clock."""

    owner: Owner
    seq: int
    renewed_at: datetime
    age_s: float

    @property
    def free(self) -> bool:
        return self.owner.released or self.age_s >= self.owner.ttl_s


async def read_lease(link: NatsLink, role: Role) -> LeaseRecord | None:
    """Raises TryAgain, or Misconfigured where the bucket is missing or the record unreadable."""
    wanted = {"last_by_subj": role.subject}
    try:
        answer, stream = await asyncio.gather(
            link.ask_jetstream(f"STREAM.MSG.GET.KV_{role.bucket}", wanted, timeout_s=ASK_WITHIN_S),
            link.ask_jetstream(f"STREAM.INFO.KV_{role.bucket}", timeout_s=ASK_WITHIN_S),  # for the server's time
        )
        found = read_stored(answer)
        age_s = (datetime.fromisoformat(stream["ts"]) - found.at).total_seconds()
        owner = Owner.model_validate_json(found.body) if found.body else Owner.deleted(found.seq)
        return LeaseRecord(owner=owner, seq=found.seq, renewed_at=found.at, age_s=max(0.0, age_s))
    except NoSuchItem:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise Misconfigured(
            f"the lease {role.key} in the bucket {role.bucket} is not a record of ours: remove it with"
            f" `nats kv del {role.bucket} {role.key}`"
        ) from error


async def read_member_leases(link: NatsLink, role: Role) -> list[LeaseRecord]:
    wanted = {"subjects_filter": f"{role.subject}.*"}
    info = await link.ask_jetstream(f"STREAM.INFO.KV_{role.bucket}", wanted, timeout_s=ASK_WITHIN_S)
    held = (info.get("state") or {}).get("subjects") or {}
    roles = (replace(role, key=subject.removeprefix(f"$KV.{role.bucket}.")) for subject in sorted(held))
    return [record for one in roles if (record := await read_lease(link, one))]


class LeaseLost(Misconfigured):
    """Another process has taken the lease over: this one must not act on the bus any more."""


class Lease:
    def __init__(self, link: NatsLink, role: Role, owner: Owner, *, clock: Callable[[], float] | None = None) -> None:
        self._link = link
        self._role = role
        self._owner = owner
        self._clock = clock or this().uptime
        self._seq = 0
        self._until = float("-inf")
        self._kept_since = float("inf")
        self._lost = ""
        self._failed: tuple[float, str] = (float("-inf"), "")
        self._asking = asyncio.Lock()

    @property
    def epoch(self) -> int:
        return self._owner.epoch

    @property
    def trouble(self) -> str:
        lapsed = self._clock() >= self._until
        return self._lost or (f"the lease of the {self._role.key} has lapsed" if lapsed else "")

    @property
    def kept_s(self) -> float:
        """Seconds for which each renewal succeeded. No lease can be renewed while the bus has no leader: a record that
        is older than its ttl says something of its owner only once ours was kept for as long."""
        return self._clock() - self._kept_since

    def may_follow(self, record: LeaseRecord) -> bool:
        """True if the record is free. An owner whose record was deleted may have a ttl as long as ours."""
        return record.free and (bool(record.owner.holder) or record.age_s >= self._owner.ttl_s)

    async def acquire(self, *, take_over: bool = False) -> LeaseRecord | None:
        """Waits for the lease; returns the record before. Raises Misconfigured where another process renews it, unless
        told to `take_over`."""
        waits_for: LeaseRecord | None = None
        while True:
            seen = await read_lease(self._link, self._role)
            if seen is None or take_over or self.may_follow(seen) or seen.owner.folder == self._owner.folder:
                self._owner = self._owner.model_copy(update={"epoch": seen.owner.epoch + 1 if seen else 1})
                self._seq = seen.seq if seen else 0
                if await self._write():
                    return seen
                continue
            if waits_for is None:
                waits_for = seen
                log.info("waiting: another may have the lease", extra={"lease": self._role.key, **dict(seen.owner)})
            elif waits_for.seq != seen.seq:
                raise Misconfigured(
                    f"this bus has its {self._role.key} already: {seen.owner}; renewed {seen.age_s:.1f} s ago, expires "
                    f"{seen.owner.ttl_s:g} s after that. Stop that process, or start this one with its store, or take "
                    f"its place: `{self._role.command} --take-over`"
                    if self._role.command
                    else f"another process has the identity of this one: {seen.owner}. One folder is a copy of the "
                    f"other: delete {ID_FILE} in the copy; the one here is {self._owner.store}"
                )
            await asyncio.sleep(LOOK_S)

    async def ensure_held(self) -> None:
        """Returns while the lease is certainly ours, renewing it if it lapsed: one attempt for all concurrent callers.
        Raises LeaseLost, or TryAgain while that cannot be known."""
        if self._clock() < self._until:
            return
        async with self._asking:
            if self._lost:
                raise LeaseLost(self._lost)
            if self._clock() >= self._until:
                at, why = self._failed
                if self._clock() - at < PATIENCE_S:
                    raise TryAgain(why)
                await self._renew()

    async def keep_renewed(self) -> None:
        """Renews the lease forever, through another server where this one does not. Raises LeaseLost."""
        ttl_s, outage = self._owner.ttl_s, Outage(f"the lease of the {self._role.key}", log)
        while True:
            await asyncio.sleep(AGAIN_S if outage.why else ttl_s / RENEWALS)
            async with self._asking:
                try:
                    await self._renew()
                    outage.over()
                except TryAgain as error:
                    outage.continues(str(error))
                    if self._link.connected and self._clock() > self._until - (SAFE - LEAVE_AFTER) * ttl_s:
                        await self._link.switch_server()

    async def release(self) -> None:
        """Frees the lease at once; where that fails, it expires."""
        async with self._asking:
            if not self._lost:
                self._owner = self._owner.model_copy(update={"released": True})
                with contextlib.suppress(Failure):
                    await self._write()
            self._lose(self._lost or "released")

    async def _renew(self) -> None:
        reason = "it keeps changing"
        try:
            for _ in range(TRIES):
                if await self._write():
                    return
                await self._find_own_record()
        except TryAgain as error:
            reason = str(error)
        why = f"the lease of the {self._role.key} has lapsed, and the bus cannot be asked who has it: {reason}"
        self._failed, self._kept_since = (self._clock(), why), float("inf")
        raise TryAgain(why)

    async def _write(self) -> bool:
        """Returns False where the newest record is another one."""
        asked_at, role, record = self._clock(), self._role, self._owner.model_dump_json().encode()
        seq = await replace_value(self._link, role.bucket, role.key, record, after=self._seq)
        if seq is not None:
            self._seq, self._until = seq, asked_at + self._owner.ttl_s * SAFE
            self._kept_since = min(self._kept_since, asked_at)
        return seq is not None

    async def _find_own_record(self) -> None:
        """Adopts the newest record, unless another process took the lease: an earlier attempt may have been stored
        without an answer, and a bus may have lost its newest records. Raises LeaseLost."""
        seen = await read_lease(self._link, self._role)
        other = seen.owner if seen and seen.owner.holder else self._owner
        if other != self._owner and other.epoch >= self._owner.epoch:
            self._lose(
                f"another {self._role.key} has taken this bus over: {other}. This process ends and does nothing "
                f"more; to have the bus back: `{self._role.command} --take-over`"
                if self._role.command
                else f"the others took {self._role.key} for dead: it was not heard of for {other.ttl_s:g} s"
            )
            raise LeaseLost(self._lost)
        self._seq = seen.seq if seen else 0

    def _lose(self, why: str) -> None:
        self._lost, self._until = why, float("-inf")
