"""Runners over a Ductile under test: each new one over the same folder is a gateway that was started again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import httpx2

from ductile_gateway.calls.call import Intent, Receipt, ToolCall, ToolOutcome, Verdict
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.runner import DuctileRunner, open_runner
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.ductile.watch import Pace
from ductile_gateway.ports import Begin, SystemClock
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.parts import KeptReceipts, asked_by, opened

PATIENCE_S = 20.0
QUICK = Pace(first_s=0.02, most_s=0.2, patience_s=10.0, settle_s=0.3, in_flight_s=0.5)
NO_TOOLS = DuctileTools()

_steps = count(1)


def a_call(command: str = "note", *, plugin: str = "probe", within_s: float = PATIENCE_S, **payload: Any) -> ToolCall:
    """A call with a key of its own."""
    key = f"run_01JZ8Q5T7W9X2Y4Z6A8B0C1D2E:{next(_steps)}:{plugin}:1"
    return ToolCall(key, plugin, command, payload, datetime.now(UTC) + timedelta(seconds=within_s), asked_by(key))


def ending(call: ToolCall, within_s: float) -> ToolCall:
    """The same call with another deadline."""
    return replace(call, deadline_at=datetime.now(UTC) + timedelta(seconds=within_s))


def settings_for(ductile: DuctileUnderTest, **changed: Any) -> DuctileSettings:
    return DuctileSettings.model_validate({"url": ductile.url, "token": ductile.token} | changed)


@asynccontextmanager
async def gateway(
    ductile: DuctileUnderTest,
    store: Path,
    *,
    tools: DuctileTools = NO_TOOLS,
    pace: Pace = QUICK,
    wire: httpx2.AsyncBaseTransport | None = None,
    **changed: Any,
) -> AsyncIterator["Recorded"]:
    """A runner, with these settings changed. `wire`: what lies between it and the relay ingress of the Ductile."""
    settings, clock = settings_for(ductile, **changed), SystemClock()
    async with (
        open_api(settings) as api,
        opened(store, KeptReceipts) as receipts,
        open_runner(
            api,
            tools,
            settings,
            receipts=receipts,
            overdue=receipts.overdue,
            clock=clock,
            pace=pace,
            relay_transport=wire,
        ) as runner,
    ):
        yield Recorded(runner, receipts)


class Recorded:
    """A runner whose calls are written down as the relay does it."""

    def __init__(self, runner: DuctileRunner, receipts: KeptReceipts) -> None:
        self._runner = runner
        self.receipts = receipts

    async def run(self, call: ToolCall, begin: Begin | None = None) -> Verdict:
        async def intended(receipt: Receipt | None = None) -> None:
            intent = Intent(asked=asked_by(call.key), may_repeat=call.may_repeat, deadline_at=call.deadline_at)
            await self.receipts.ledger.intend(intent, receipt)

        return await self._runner.run(call, begin or intended)

    async def resume(self, call: ToolCall) -> Verdict:
        return await self._runner.resume(call)

    async def forget(self, key: str) -> None:
        await self._runner.forget(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


def outcome(verdict: Verdict) -> ToolOutcome:
    assert isinstance(verdict, ToolOutcome), verdict
    return verdict
