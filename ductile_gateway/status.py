"""How the gateway is, for whoever asks: `agentic doctor`, and probes on the bus.

Every part looks after itself, at the same time and within a bound; what takes too long is itself a finding.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ductile_gateway.errors import TryAgain
from ductile_gateway.offers import Offers
from schemas.gateway_status import Finding, GatewayStatus

LOOK_WITHIN_S = 3.0
FRESH_S = 1.0

Look = Callable[[], Awaitable[Sequence[Finding]]]


class Status:
    """Asks all parts, by name, at most once in FRESH_S seconds."""

    def __init__(self, looks: Mapping[str, Look], *, version: str, within_s: float = LOOK_WITHIN_S) -> None:
        self._looks = dict(looks)
        self._version = version
        self._within_s = within_s
        self._told: GatewayStatus | None = None
        self._told_at = float("-inf")
        self._asking = asyncio.Lock()

    def also(self, name: str, look: Look) -> None:
        """One part more, which is there by now."""
        self._looks[name] = look

    async def tell(self) -> GatewayStatus:
        """What all parts found. Never raises but where a part has a flaw."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if self._told is None or now - self._told_at > FRESH_S:
                parts = await asyncio.gather(*(self._ask(name, look) for name, look in self._looks.items()))
                findings = tuple(finding for part in parts for finding in part)
                self._told, self._told_at = GatewayStatus(version=self._version, findings=findings), now
            return self._told

    async def _ask(self, name: str, look: Look) -> Sequence[Finding]:
        try:
            async with asyncio.timeout(self._within_s):
                return await look()
        except TimeoutError:
            why = f"it did not say within {self._within_s:g} s how it is"
        except TryAgain as error:
            why = str(error)
        return [Finding(name=name, mark="warning", text=why, remedy="ask again; see the gateway's log")]


def look_at_offers(offers: Offers, *, version: str, runner: str) -> Sequence[Finding]:
    """The tools, and what is wrong with those that are missing."""
    if not offers.catalog.tools:
        text, remedy = f"{version}, waits until it is told its tools", "see below; requests wait on the bus until then"
        return [Finding(name="gateway", mark="wrong", text=text, remedy=remedy)]
    text = f"{version}, {len(offers.catalog.tools)} tools, runner {runner}"
    left_out = [
        Finding(name="gateway tools", mark="warning", text=problem, remedy="see docs/CONFIGURATION.md, gateway.tools")
        for problem in offers.problems
    ]
    return [Finding(name="gateway", mark="ok", text=text), *left_out]
