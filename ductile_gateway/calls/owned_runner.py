"""The runner of a gateway that owns its bus: a call is started only while that is sure. Fills the port ToolRunner."""

from ductile_gateway.calls.call import ToolCall, Unknown, Verdict
from ductile_gateway.calls.inheritance import Inheritance
from ductile_gateway.ports import Check, ToolRunner, passes
from groundwork.nats.lease import Lease


class OwnedRunner:
    """Asks right before a start: a gateway that was stopped there must not start what another was given meanwhile. And
    what another may have begun is not started here."""

    def __init__(self, runner: ToolRunner, lease: Lease, inheritance: Inheritance) -> None:
        self._runner = runner
        self._lease = lease
        self._inheritance = inheritance

    async def run(self, call: ToolCall, check: Check = passes) -> Verdict:
        doubt = self._inheritance.doubt(call.key)
        if doubt and not call.may_repeat:
            return Unknown(doubt)

        async def passed_and_held() -> None:
            await check()
            await self._lease.held()

        return await self._runner.run(call, passed_and_held)

    async def resume(self, call: ToolCall) -> Verdict:
        return await self._runner.resume(call)

    async def forget(self, key: str) -> None:
        await self._runner.forget(key)
