"""How the agent is, and all that it needs: one strip of checks. Every part is looked at within a bound."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from agent_service.telling.findings import ok, warning, wrong
from agent_service.telling.view import View
from groundwork.service.errors import Failure
from schemas.fields import Instant
from schemas.gateway_status import Finding

WITHIN_S = 4.0
FRESH_S = 2.0

Part = Literal["agent", "gateway", "nats", "ductile", "model", "store"]
Look = Callable[[], Awaitable[Sequence[Finding]]]

_READY: Mapping[str, tuple[Part, str, str]] = {
    "bus": ("nats", "the agent hears the bus and holds its lease", "see the agent's log; `agentic doctor` says more"),
    "store": ("store", "it can be read and written", "see the agent's log: mend its disk, or make room there"),
    "halt": ("agent", "nobody has stopped it", "`agentic go-on` lets everything go on"),
    "skills": (
        "gateway",
        "tools are on offer",
        "start `ductile-gateway serve`",
    ),
    "model": ("model", "no run has met trouble with it in the last minute", "correct the section agent.model"),
}
"""What the agent needs to be ready: its part, what is said when all is well, and what to do when it is not."""


class CheckView(View):
    """One thing that was looked at. `wrong`: nothing goes on like this. Where all is well, no `remedy`."""

    part: Part
    name: str
    mark: Literal["ok", "warning", "wrong"]
    text: str
    remedy: str


class HealthView(View):
    """What was found, at most some seconds ago (`at`); of the agent itself just now."""

    checks: tuple[CheckView, ...]
    at: Instant


class HealthCalls:
    def __init__(
        self,
        readiness: Callable[[], Awaitable[Mapping[str, str]]],
        looks: Mapping[Part, Look],
        *,
        within_s: float = WITHIN_S,
        fresh_s: float = FRESH_S,
    ) -> None:
        self._readiness = readiness
        self._looks = looks
        self._within_s = within_s
        self._fresh_s = fresh_s
        self._told: tuple[CheckView, ...] | None = None
        self._seen_at = datetime.now(UTC)
        self._told_at = float("-inf")
        self._asking = asyncio.Lock()

    async def show_health(self) -> HealthView:
        """How the agent, its gateway, NATS, Ductile, the model and the store are."""
        async with self._asking:
            clock = asyncio.get_running_loop().time
            if self._told is None or clock() - self._told_at > self._fresh_s:
                self._told = await self._look()
                self._told_at, self._seen_at = clock(), datetime.now(UTC)
            own = _checks("agent", await self._ask("agent", self._ready))
            return HealthView(checks=(*self._told, *own), at=self._seen_at)

    async def _look(self) -> tuple[CheckView, ...]:
        looks = self._looks.items()
        found = await asyncio.gather(*(self._ask(part, look) for part, look in looks))
        return tuple(
            check for (part, _), findings in zip(looks, found, strict=True) for check in _checks(part, findings)
        )

    async def _ready(self) -> Sequence[Finding]:
        return [_of_readiness(name, trouble) for name, trouble in (await self._readiness()).items()]

    async def _ask(self, part: Part, look: Look) -> Sequence[Finding]:
        remedy = "ask again; see the agent's log"
        try:
            async with asyncio.timeout(self._within_s):
                return await look()
        except TimeoutError:
            return [warning(part, f"it did not say within {self._within_s:g} s how it is", remedy=remedy)]
        except Failure as error:
            return [wrong(part, str(error), remedy=remedy)]


def _of_readiness(name: str, trouble: str) -> Finding:
    _, well, remedy = _READY.get(name, ("agent", "all is well", "see the agent's log"))
    return wrong(name, trouble, remedy=remedy) if trouble else ok(name, well)


def _checks(part: Part, findings: Sequence[Finding]) -> Iterator[CheckView]:
    for finding in findings:
        of = "ductile" if finding.name.startswith("ductile") else part
        if part == "agent" and finding.name in _READY:
            of = _READY[finding.name][0]
        yield CheckView(part=of, **finding.model_dump())
