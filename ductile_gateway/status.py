"""How the gateway is, for whoever asks: `agentic doctor`, and probes on the bus."""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from ductile_gateway.calls.excerpts import printable
from ductile_gateway.calls.waiting import look_at_waiting
from ductile_gateway.tools.catalog import Offers
from groundwork.service.errors import Broken, Failure, TryAgain
from schemas.status import Finding, GatewayStatus, WaitingCall
from schemas.values import dataclass

TOOLS_ARE_SET_BY = "see docs/TOOLS.md; and docs/CONFIGURATION.md, gateway.tools"
LOOK_WITHIN_S = 3.0
FRESH_S = 1.0
NEARLY_FULL, MUCH_ROOM = 0.8, 20 << 30
"""The share of a disk that is taken, and how much free room is enough whatever that share is."""

log = logging.getLogger(__name__)

Look = Callable[[], Sequence[Finding] | Awaitable[Sequence[Finding]]]


@dataclass(kw_only=True, eq=False)
class Status:
    """Asks all parts, by name, at most once in FRESH_S seconds. `name`: of this gateway among those that share a
    ledger. `number`: how many live; None for one alone."""

    looks: dict[str, Look]
    version: str
    executor: str | None = None
    within_s: float = LOOK_WITHIN_S
    name: str = ""
    number: Callable[[], Awaitable[int]] | None = None
    waiting: Callable[[], tuple[WaitingCall, ...]] = tuple

    def __post_init__(self) -> None:
        self._told: GatewayStatus | None = None
        self._told_at = float("-inf")
        self._asking = asyncio.Lock()

    async def tell(self) -> GatewayStatus:
        async with self._asking:
            clock = asyncio.get_running_loop().time
            if self._told is None or clock() - self._told_at > FRESH_S:
                parts = await asyncio.gather(*(self._ask(name, look) for name, look in self.looks.items()))
                waiting = self.waiting()
                self._told = GatewayStatus(
                    version=self.version,
                    findings=(*(finding for part in parts for finding in part), *look_at_waiting(waiting)),
                    waiting=waiting,
                    executor=self.executor,
                    gateway=self.name,
                    gateways=await self._gateways(),
                )
                self._told_at = clock()
            return self._told

    async def _gateways(self) -> int:
        try:
            return max(1, await self.number()) if self.number else 1
        except Failure:
            return 1

    async def _ask(self, name: str, look: Look) -> Sequence[Finding]:
        try:
            async with asyncio.timeout(self.within_s):
                found = look()
                return await found if isinstance(found, Awaitable) else found
        except TimeoutError:
            why = f"it did not say within {self.within_s:g} s how it is"
        except (TryAgain, Broken) as error:
            why = printable(error)
        except Exception as error:  # whoever asks is told of the other parts all the same
            log.exception("a part of the gateway cannot say how it is", extra={"part": name})
            why = f"it cannot say how it is ({type(error).__name__})"
        return [Finding(name=name, mark="warning", text=why, remedy="ask again; see the gateway's log")]


def look_at_store(trouble: str, folder: Path) -> Sequence[Finding]:
    if not trouble:
        return tuple(_look_at_disk(folder))
    text = f"nothing could be stored at the last try: {printable(trouble)}"
    return [Finding(name="gateway store", mark="wrong", text=text, remedy="make room: requests wait on the bus")]


def _look_at_disk(folder: Path) -> Iterator[Finding]:
    size, _, free = shutil.disk_usage(folder)
    if free < size * (1 - NEARLY_FULL) and free < MUCH_ROOM:
        text = f"the disk of {folder} is {1 - free / size:.0%} full"
        yield Finding(
            name="gateway store", mark="warning", text=text, remedy="free space soon: without it nothing can be stored"
        )


def look_at_offers(offers: Offers, *, version: str, runner: str) -> Sequence[Finding]:
    if not offers.catalog.tools:
        text, remedy = f"{version}, waits until it is told its tools", "see below; requests wait on the bus until then"
        return [Finding(name="gateway", mark="wrong", text=text, remedy=remedy)]
    text = f"{version}, {len(offers.catalog.tools)} tools, runner {runner}"
    left_out = [
        Finding(name="gateway tools", mark="warning", text=printable(problem), remedy=TOOLS_ARE_SET_BY)
        for problem in offers.problems
    ]
    return [Finding(name="gateway", mark="ok", text=text), *left_out]
