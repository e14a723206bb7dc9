"""Authenticates messages of the agent, which signs events of its runs and requests for writes.

    signed by a trusted key    accepted
    unsigned, or invalid       refused
    signed by an unknown key   the agent is asked for its keys; a key that a trusted key endorses is trusted, too

Trusted are the configured keys, or else those that the agent gave on first use, which are pinned. Keys that the agent
no longer lists are revoked. While no key is known, messages wait.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NoReturn

from ductile_gateway.store.rows import Rows
from groundwork.service.errors import GiveUp, TryAgain
from groundwork.service.keys import verifies
from groundwork.service.machine import monotonic, utc_now
from schemas import signing
from schemas.signing import AgentKey
from schemas.status import Finding
from schemas.values import dataclass

PATIENCE_S = 5.0
"""Time for an agent that has just started to give its keys, before a finding warns."""
ASK_EVERY_S = 1.0
LOOK_EVERY_S = 60.0
"""Interval of routine checks, so that a revoked key is soon no longer trusted."""
_SHOWN = "`ductile-gateway trust` shows whose word counts"
_PINNED = "SELECT subject, head, body FROM rows WHERE kind = 'pinned'"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pin:
    id: str
    public: str
    pinned_at: str


@dataclass(frozen=True)
class Pinned:
    pins: tuple[Pin, ...]
    body: bytes = b""


@dataclass(eq=False)
class Pins:
    """The pinned keys of the agent, the newest first; one row. Methods raise TryAgain."""

    rows: Rows

    def all(self) -> Mapping[str, str]:
        return {pin.id: pin.public for row in self.rows.listed(Pinned, _PINNED) for pin in row.pins}

    async def newest(self) -> tuple[Pin, ...]:
        row = await self.rows.read(Pinned)
        return row.pins if row else ()

    async def trust(self, keys: Sequence[AgentKey]) -> None:
        """Replaces all pinned keys. Durable on return. Raises TryAgain also if they have changed meanwhile."""
        seen, at = await self.newest(), utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
        since = {(pin.id, pin.public): pin.pinned_at for pin in seen}
        wanted = {key.id: Pin(key.id, key.public, since.get((key.id, key.public), at)) for key in keys}

        def instead(row: Pinned | None) -> Pinned:
            if (row.pins if row else ()) != seen:
                raise TryAgain("another gateway has pinned keys of the agent meanwhile")
            return Pinned(tuple(wanted.values()))

        await self.rows.change(Pinned, instead)


@dataclass(eq=False)
class Trust:
    """`ask`: returns the agent's keys; raises TryAgain. `given`: configured public keys; with these nothing is pinned.
    `refused`: called for each refused message."""

    pins: Pins
    ask: Callable[[], Awaitable[Sequence[AgentKey]]]
    given: Sequence[str] = ()
    refused: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self._began_at = monotonic()
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        self._contested: tuple[str, ...] = ()
        self._refused = 0
        self._trouble = ""

    async def check(self, subject: str, body: bytes, header: str | None, *, again: bool = False) -> None:
        """Raises GiveUp unless the agent signed the message, and TryAgain. `again`: the message was put off before."""
        key_id, signature = signing.parse_header(header) or ("", "")
        trusted = self.given or await self._trusted(key_id, again=again)
        message = signing.signed_content(subject, body)
        if signature and any(verifies(public, signature, message) for public in trusted):
            return
        if not signature:
            why = "it has no signature"
        elif trusted:
            why = f"its signature is not by key {key_id}"
        else:
            why = f"key {key_id} is not trusted, and no key that is trusted endorses it"
        self._refused += 1
        self.refused()
        raise GiveUp(f"not said by the agent: {why}. Nothing came of it; {_SHOWN}")

    async def _trusted(self, key_id: str, *, again: bool) -> Sequence[str]:
        """The public key of this id, if it is trusted. Asks the agent for an unknown one."""
        if not (known := self.pins.all()) or (key_id and key_id not in known):
            async with self._asking:
                if monotonic() - self._asked_at >= ASK_EVERY_S:
                    await self._learn()
                elif not again:  # the agent may have been asked before it had this key
                    raise TryAgain("the agent is asked for its keys again", ASK_EVERY_S)
            if not (known := self.pins.all()):
                raise TryAgain("the agent has told no key", ASK_EVERY_S)
        return [known[key_id]] if key_id in known else []

    async def _learn(self) -> None:
        try:
            keys = await self.ask()
            given = {key.id: key.public for key in keys if key.public in self.given}
            trusted = given if self.given else await self._pin(keys)
        except TryAgain as error:
            self._trouble = str(error)
            raise
        self._trouble, self._asked_at = "", monotonic()
        self._contested = contested_of(keys[:1], trusted)

    async def _pin(self, keys: Sequence[AgentKey]) -> Mapping[str, str]:
        """The pinned keys, which follow the keys that the agent tells."""
        known = self.pins.all()
        now = trusted_of(keys, known) if known else keys
        if not now or now[0] != keys[0] or {key.id for key in now} == known.keys():
            return known
        await self.pins.trust(now)
        what = "other keys of the agent are trusted" if known else "the keys of the agent are known from now on"
        log.log(logging.WARNING if known else logging.INFO, what, extra={"keys": [key.id for key in now]})
        return {key.id: key.public for key in now}

    async def keep(self) -> NoReturn:
        while True:
            pause_s = LOOK_EVERY_S
            try:
                async with self._asking:
                    await self._learn()
            except TryAgain as error:
                pause_s = max(error.delay_s, ASK_EVERY_S)
            await asyncio.sleep(pause_s)

    def findings(self) -> Sequence[Finding]:
        found = list[tuple[str, str]]()
        if not self.given and not self.pins.all() and monotonic() - self._began_at > PATIENCE_S:
            why = self._trouble or "it was not asked yet"
            text = f"no agent has told the keys that it signs with, so runs are announced to no receiver: {why}"
            found.append((text, "start the agent"))
        if self._contested:
            text = f"the agent tells a key that is not trusted here: {', '.join(self._contested)}"
            again = "if it is your agent, with new keys: stop the gateway, then `ductile-gateway trust --again`"
            found.append((text, f"{again}; until then what it says of runs becomes dead letters"))
        if self._refused:
            text = f"{self._refused} messages since the start were not the agent's word: nothing came of them"
            remedy = "see them with `agentic dlq ls`, and who may publish what on the bus: docs/BUS.md, Permissions"
            found.append((text, remedy))
        return [Finding(name="agent's word", mark="warning", text=text, remedy=remedy) for text, remedy in found]


def trusted_of(keys: Sequence[AgentKey], known: Mapping[str, str]) -> Sequence[AgentKey]:
    trusted, new = dict(known), dict(known)
    while new:  # the order of keys does not matter
        new = {key.id: key.public for key in keys if key.id not in trusted and _is_endorsed(key, trusted)}
        trusted |= new
    return tuple(key for key in keys if trusted.get(key.id) == key.public)


def contested_of(keys: Sequence[AgentKey], known: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(key.id for key in keys if known.get(key.id) != key.public)


def _is_endorsed(key: AgentKey, known: Mapping[str, str]) -> bool:
    by = key.endorsed_by
    if by is None or by.id not in known:
        return False
    return verifies(known[by.id], by.signature, signing.endorsed_content(key.id, key.public))
