"""One owner of a role on the bus: a record in a key-value bucket, which its owner renews by compare-and-swap.

A record that was not renewed for its `ttl_s`, by the server's clock, is anybody's; a store's own is its own at once,
for the lock on the store lets one process have it. The owner counts from before it asked, by a clock that goes on while
the machine sleeps: it knows its lease to have lapsed before another may have it.
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

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import WRONG_SEQUENCE, NotThere, Refused
from groundwork.service.errors import Failure, Misconfigured, TryAgain
from groundwork.service.machine import this, utc_now
from groundwork.service.store_folder import store_id

ASK_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What is owned: `key` of `bucket`. `command` is what a person starts to take it over."""

    bucket: str
    key: str
    command: str

    @property
    def subject(self) -> str:
        return f"$KV.{self.bucket}.{self.key}"


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
        return cls(
            holder=store_id(store),
            host=socket.gethostname(),
            pid=os.getpid(),
            store=str(store.absolute()),
            since=utc_now().isoformat(timespec="milliseconds"),
            ttl_s=ttl_s,
        )

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} with the store {self.store}, since {self.since}"


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
        renewed_at = datetime.fromisoformat(message["time"])
        age = datetime.fromisoformat(stream["ts"]) - renewed_at
        return Record(owner=owner, seq=message["seq"], renewed_at=renewed_at, age_s=max(0.0, age.total_seconds()))
    except NotThere:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise Misconfigured(
            f"the lease {role.key} in the bucket {role.bucket} is no record of ours: remove it with"
            f" `nats kv del {role.bucket} {role.key}`"
        ) from error


async def look_at_all(link: NatsLink, role: Role) -> list[Record]:
    """The records of all who share the role, each under a key of its own (`agent.store_…`). Raises as `look`."""
    wanted = {"subjects_filter": f"{role.subject}.*"}
    info = await link.ask_jetstream(f"STREAM.INFO.KV_{role.bucket}", wanted, timeout_s=ASK_WITHIN_S)
    held = (info.get("state") or {}).get("subjects") or {}
    roles = (replace(role, key=subject.removeprefix(f"$KV.{role.bucket}.")) for subject in sorted(held))
    return [record for one in roles if (record := await look(link, one))]


RENEWALS = 5
SAFE = 0.9
"""Of its time the owner trusts a lease: clocks may differ in how fast they go."""
LOOK_S = 0.1
TRIES = 3
PATIENCE_S = 1.0
"""How long an attempt that failed speaks for those who ask after it."""

log = logging.getLogger(__name__)


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
    def key(self) -> str:
        return self._role.key

    @property
    def epoch(self) -> int:
        return self._owner.epoch

    @property
    def trouble(self) -> str:
        lapsed = self._clock() >= self._until
        return self._taken or (f"the lease of the {self._role.key} has lapsed" if lapsed else "")

    @property
    def age_s(self) -> float:
        return self._clock() - self._renewed_at

    def is_of(self, holder: str) -> bool:
        return holder == self._owner.holder

    async def acquire(self, *, take_over: bool = False) -> Record | None:
        """Wait for the lease; returns its owner before. Raises Held where another renews it, unless told to
        `take_over`."""
        waits_for: Record | None = None
        while True:
            seen = await look(self._link, self._role)
            if seen is None or take_over or seen.free or self.is_of(seen.owner.holder):
                if await self._take(seen):
                    return seen
            elif waits_for and seen.seq != waits_for.seq:
                raise Held(self._refusal(seen))
            else:
                if waits_for is None:
                    waits_for = seen
                    log.info(
                        "waiting: another may have the lease", extra={"lease": self._role.key, **asdict(seen.owner)}
                    )
                await asyncio.sleep(LOOK_S)

    async def held(self) -> None:
        """Returns while the lease is ours for sure, perhaps after a renewal. Raises Taken, or TryAgain while nobody can
        say."""
        if self._taken:
            raise Taken(self._taken)
        if self._clock() >= self._until:
            await self._regain()

    async def keep(self) -> None:
        has_lapsed = False
        while True:
            await asyncio.sleep(self._owner.ttl_s / RENEWALS)
            with contextlib.suppress(TryAgain):
                async with self._asking:
                    await self._renew()
            if has_lapsed != (self._clock() >= self._until):
                has_lapsed = not has_lapsed
                log.warning("the lease has lapsed: %s" if has_lapsed else "the lease is ours again%s", self._why)

    async def release(self) -> None:
        """Let the next have it at once. Not being able to is no error: it expires."""
        async with self._asking:
            if not self._taken:
                with contextlib.suppress(Failure):
                    await self._link.swap(
                        self._role.subject, _body(replace(self._owner, released=True)), after=self._seq
                    )
            self._taken = self._taken or "released"

    @property
    def _why(self) -> str:
        at, why = self._failed
        return why if at >= self._until else ""

    async def _take(self, seen: Record | None) -> bool:
        epoch = seen.owner.epoch + 1 if seen else 1
        self._owner = replace(self._owner, epoch=epoch)
        self._seq = seen.seq if seen else 0
        try:
            await self._swap()
        except Refused as error:
            if error.code == WRONG_SEQUENCE:
                return False
            raise
        return True

    async def _regain(self) -> None:
        """One attempt for all who ask at the same time."""
        async with self._asking:
            if self._clock() < self._until:
                return
            at, why = self._failed
            if self._clock() - at < PATIENCE_S:
                raise TryAgain(why)
            await self._renew()

    async def _renew(self) -> None:
        try:
            await self._swap_or_learn_why_not()
        except TryAgain as error:
            why = f"the lease of the {self._role.key} has lapsed, and the bus cannot be asked who has it: {error}"
            self._failed = (self._clock(), why)
            raise TryAgain(why) from error

    async def _swap_or_learn_why_not(self) -> None:
        for _ in range(TRIES):
            try:
                return await self._swap()
            except Refused as error:
                if error.code != WRONG_SEQUENCE:
                    raise TryAgain(str(error)) from error
                await self._learn_who_has_it()
        raise TryAgain("it keeps changing")

    async def _swap(self) -> None:
        asked_at = self._clock()
        self._seq = await self._link.swap(self._role.subject, _body(self._owner), after=self._seq)
        self._renewed_at = asked_at
        self._until = asked_at + self._owner.ttl_s * SAFE

    async def _learn_who_has_it(self) -> None:
        """An earlier try of ours may have been stored without a word, and a bus may have lost its newest records."""
        seen = await look(self._link, self._role)
        if seen and seen.owner != self._owner and seen.owner.epoch >= self._owner.epoch:
            self._taken = self._told_taken(seen)
            raise Taken(self._taken)
        self._seq = seen.seq if seen else 0

    def _told_taken(self, seen: Record) -> str:
        if not self._role.command:
            return f"the others took {self._role.key} for dead: it was not heard of for {seen.owner.ttl_s:g} s"
        return (
            f"another {self._role.key} has taken this bus over: {seen.owner}. This process ends and does "
            f"nothing more; to have the bus back: `{self._role.command} --take-over`"
        )

    def _refusal(self, seen: Record) -> str:
        return (
            f"this bus has its {self._role.key} already: {seen.owner}; renewed {seen.age_s:.1f} s ago, expires "
            f"{seen.owner.ttl_s:g} s after that. Stop that process, or start this one with its store, or take its "
            f"place: `{self._role.command} --take-over`"
        )


@contextlib.asynccontextmanager
async def hold(lease: Lease, link: NatsLink, *, take_over: bool = False) -> AsyncIterator[Record | None]:
    """Nothing leaves by `link` without the lease. Yields who had it before. Raises Held; and Taken, in an
    ExceptionGroup."""
    before = await lease.acquire(take_over=take_over)
    link.guard_by(lease.held)
    link.alone = True
    try:
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(lease.keep())
            yield before
            keeping.cancel()
    finally:
        await lease.release()


def _body(owner: Owner) -> bytes:
    return json.dumps(asdict(owner)).encode()
