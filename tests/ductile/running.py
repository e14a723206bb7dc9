"""Calls, and runners over a Ductile under test. A new runner over the same folder is a restarted gateway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx2

from ductile_gateway.calls.call import CALL_ID, ToolCall, ToolOutcome, Verdict
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.jobs import DuctileHealth
from ductile_gateway.ductile.runner import DuctileRunner, Ductiles, open_ductiles
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.ductile.watch import Timing
from ductile_gateway.ports import Begin
from tests.ductile.under_test import DuctileUnderTest, Execution
from tests.gateway.parts import a_tool_call
from tests.ledger.kit import embedded

QUICK = Timing(first_s=0.02, most_s=0.2, patience_s=10.0, settle_s=0.3, in_flight_s=0.5, again_first_s=0.05)
NO_TOOLS = DuctileTools()
PIPELINE = "probe-asked"
OF_A_PIPELINE = DuctileTools(pipelines=frozenset({PIPELINE}))
NOWHERE = DuctileSettings.model_validate({"url": "http://localhost:1", "token": "token-of-mine", "events": False})

_steps = count(1)


def a_call(command: str = "note", *, plugin: str = "probe", within_s: float = 20, **payload: Any) -> ToolCall:
    return a_tool_call(plugin, command, payload, within_s=within_s, step=next(_steps))


def settings_for(ductile: DuctileUnderTest, **changed: Any) -> DuctileSettings:
    return DuctileSettings.model_validate({"url": ductile.url, "token": ductile.token} | changed)


class Recorded:
    """A runner whose calls are recorded in a ledger, as the relay does."""

    def __init__(self, runner: DuctileRunner, ledger: Ledger, several: Ductiles) -> None:
        self._runner, self._ledger, self.several = runner, ledger, several

    async def run(self, call: ToolCall, begin: Begin | None = None) -> Verdict:
        return await self._runner.run(call, begin or partial(self._ledger.intend, call))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


@asynccontextmanager
async def gateway(
    ductile: DuctileUnderTest,
    store: Path,
    *,
    tools: DuctileTools = NO_TOOLS,
    timing: Timing = QUICK,
    transport: httpx2.AsyncBaseTransport | None = None,
    **changed: Any,
) -> AsyncIterator[Recorded]:
    settings = settings_for(ductile, **changed)
    async with (
        embedded(store)() as stores,
        open_ductiles(
            {"": settings},
            {"": tools},
            stores.ledger,
            healths={"": DuctileHealth()},
            on_start=lambda *_: None,
            timing=timing,
            transport=transport,
        ) as several,
    ):
        several.every_s = timing.most_s
        yield Recorded(several.runners[""], stores.ledger, several)


def outcome(verdict: Verdict) -> ToolOutcome:
    assert isinstance(verdict, ToolOutcome), verdict
    return verdict


def ran(ductile: DuctileUnderTest, call: ToolCall) -> list[Execution]:
    return [one for one in ductile.executions if one.payload.get(CALL_ID) == call.key]
