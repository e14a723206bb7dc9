"""Calls that this gateway began and another has answered meanwhile: what came of them is told late."""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Protocol

from ductile_gateway.calls.answers import Answers
from ductile_gateway.calls.call import Answer, ToolOutcome, Verdict
from ductile_gateway.calls.insisting import insist
from ductile_gateway.calls.results import UNSEEN
from ductile_gateway.ports import Ledger


class Remembers(Protocol):
    def remembered(self) -> Collection[str]: ...

    async def end_of(self, key: str) -> Verdict: ...

    async def forget(self, key: str) -> None: ...


async def tell_of_left_over(runner: Remembers, ledger: Ledger, answers: Answers) -> None:
    """Tell of all that there are now. Returns when they have ended. Raises Broken or Misconfigured."""
    async with asyncio.TaskGroup() as group:
        for key in runner.remembered():
            group.create_task(insist({"call": key}, partial(_tell, key, runner, ledger, answers)))


async def _tell(key: str, runner: Remembers, ledger: Ledger, answers: Answers) -> None:
    if not isinstance(await ledger.find(key), Answer):
        return
    verdict = await runner.end_of(key)
    if isinstance(verdict, ToolOutcome) and verdict.error_class not in UNSEEN:
        await answers.tell_late(key, verdict)
    await runner.forget(key)
