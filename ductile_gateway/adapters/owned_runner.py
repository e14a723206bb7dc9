"""The runner of a gateway that owns its bus: a call is started only while that is sure. Fills the port ToolRunner."""

from ductile_gateway.adapters.owned_ledger import held
from ductile_gateway.core.calls import ToolCall, Verdict
from ductile_gateway.ports import Check, ToolRunner, passes
from groundwork.lease import Lease


class OwnedRunner:
    """Asks right before a start: a gateway that was stopped there must not start what another was given meanwhile."""

    def __init__(self, runner: ToolRunner, lease: Lease) -> None:
        self._runner = runner
        self._lease = lease

    async def run(self, call: ToolCall, check: Check = passes) -> Verdict:
        async def passed_and_held() -> None:
            await check()
            await held(self._lease)

        return await self._runner.run(call, passed_and_held)

    async def resume(self, call: ToolCall) -> Verdict:
        return await self._runner.resume(call)

    async def forget(self, key: str) -> None:
        await self._runner.forget(key)
