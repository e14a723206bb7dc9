"""Whether the store is the one that the agent left, asked before it is worked with; and saying so for the next time.

    start ─▶ seal what an earlier version wrote, once ─▶ compare with the anchors ─▶ work, and anchor now and then

Where it is another one, or an older, the agent does not begin: a run that goes on from an older state does again what
it has done, and forgets what people told it. Whoever restored a backup on purpose says so with `agentic seal`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from agent_service.anchors import Anchor, Standing
from agent_service.ports import Clock
from groundwork.service.errors import Failure, Misconfigured, TryAgain
from groundwork.service.key_ring import KeyRing
from groundwork.service.outage import Outage

ANCHORED_EVERY_S = 2.0
TAKE_IT = "look with `agentic verify --all`, then take the store as it is with `agentic seal`, and start again"

log = logging.getLogger(__name__)


class Standings(Protocol):
    """What the store says of itself."""

    def now(self) -> Standing: ...

    async def counted(self) -> Standing: ...

    def head_at(self, position: int) -> str: ...

    def is_gone(self, position: int) -> bool: ...

    async def unsealed(self) -> Sequence[str]: ...

    async def strange_key(self) -> str: ...

    async def reseal(self) -> int: ...

    async def seal(self, run_ids: Sequence[str]) -> None: ...


class AnchorsBeside(Protocol):
    """The anchors beside the keys."""

    def all(self) -> Mapping[str, Anchor]: ...

    def keep(self, anchor: Anchor) -> None: ...


class AnchorBoard(Protocol):
    """The anchors on the bus."""

    async def get(self, store: str) -> Anchor | None: ...

    async def put(self, anchor: Anchor) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnesses:
    """Who knows of the store with the id `store`, and by which keys."""

    store: str
    ring: KeyRing
    beside: AnchorsBeside
    bus: AnchorBoard | None

    async def anchors(self) -> list[Anchor]:
        """What they say of it; what the agent has not said does not count. Raises Misconfigured, and TryAgain."""
        told = [self.beside.all().get(self.store), await self.bus.get(self.store) if self.bus else None]
        return [anchor for anchor in told if anchor and anchor.is_of(self.store, self.ring)]


def contradictions(store: Standings, now: Standing, anchors: Sequence[Anchor]) -> list[str]:
    """What anchors say that is not so `now`."""
    return list(dict.fromkeys(filter(None, (_contradiction(store, now, anchor) for anchor in anchors))))


def _contradiction(store: Standings, now: Standing, anchor: Anchor) -> str:
    head_then = store.head_at(anchor.position)
    return anchor.contradicted_by(now, head_then, is_gone=not head_then and store.is_gone(anchor.position))


class Anchoring:
    """Of one store, while its agent works."""

    def __init__(self, store: Standings, witnesses: Witnesses, clock: Clock) -> None:
        self._store = store
        self._witnesses = witnesses
        self._clock = clock
        self._missing = 0
        self._seals_with = ""
        self._said: tuple[Standing, str] | None = None
        self._outage = Outage("the anchor on the bus", log)

    async def check(self) -> list[str]:
        """Seal what an earlier version left; the ids of runs that should have a seal and have none.

        Raises Misconfigured for another store than the agent left.
        """
        if key := await self._store.strange_key():
            raise Misconfigured(
                f"the runs of this store are sealed with the key {key}, which the keys file does not hold: restore the "
                f"keys file; or {TAKE_IT}"
            )
        anchors, sealed_before = await self._witnesses.anchors(), bool(self._witnesses.beside.all())
        now = await self._store.counted()
        self._missing = now.missing
        if found := contradictions(self._store, now, anchors):
            raise Misconfigured(f"this store is not as its agent left it: {'; '.join(found)}. Restore it; or {TAKE_IT}")
        if sealed_before and not anchors and now.position:
            raise Misconfigured(
                f"this store is not one of those that the keys have sealed. Restore its keys; or {TAKE_IT}"
            )
        unsealed = await self._store.unsealed()
        if unsealed and not anchors:
            await self._store.seal(unsealed)
            log.warning("runs of an earlier version were sealed as they are", extra={"runs": len(unsealed)})
            unsealed = []
        return list(unsealed)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Say it whenever it has changed, and once more at the end."""
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self._keep())
                yield
                keeping.cancel()
        finally:
            await self.say()

    async def _keep(self) -> None:
        while True:
            await self.say()
            await self._follow_keys()
            await asyncio.sleep(ANCHORED_EVERY_S)

    async def _follow_keys(self) -> None:
        """Where there is a newer key than those that runs are sealed with, have it seal them all."""
        keys = self._witnesses.ring.keys
        if keys[0].id == self._seals_with or len(keys) == 1:
            return
        with suppress(TryAgain):
            if runs := await self._store.reseal():
                log.info("sealed with the newest key", extra={"runs": runs, "key": keys[0].id})
            self._seals_with = keys[0].id

    async def say(self) -> None:
        """Say how far the store has come, if that or the newest key has changed. What does not take it is told of."""
        ours = self._witnesses
        try:
            now = replace(self._store.now(), missing=self._missing), ours.ring.keys[0].id
            if now == self._said:
                return
            anchor = Anchor.made(ours.store, now[0], self._clock.now(), ours.ring)
            ours.beside.keep(anchor)
            if ours.bus:
                await ours.bus.put(anchor)
            self._said = now
            self._outage.over()
        except (TryAgain, Failure) as error:
            self._outage.goes_on(str(error))
