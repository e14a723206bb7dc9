"""The tool `echo` inside the gateway's own process, for benchmarks and tests. A crash leaves its calls unknown."""

from collections.abc import Mapping

from ductile_gateway.calls.call import ToolCall, ToolOutcome, Unknown, Verdict
from ductile_gateway.plugins.manifest import Command, Manifest
from ductile_gateway.ports import Begin, unrecorded


class InProcessTools:
    """Runs `echo` at once. Fills the port ToolRunner."""

    finds_anywhere = False

    async def run(self, call: ToolCall, begin: Begin = unrecorded) -> Verdict:
        await begin()
        return ToolOutcome("ok", text=f"{call.command} was given {len(call.payload)} arguments", output=call.payload)

    async def resume(self, call: ToolCall) -> Verdict:
        return Unknown(f"the gateway ended while {call.plugin} {call.command} may have been running inside it")

    async def forget(self, key: str) -> None:
        """Nothing was remembered."""


def in_process_manifests() -> Mapping[str, Manifest]:
    anything = {"type": "object"}
    echo = Manifest(
        manifest_spec="ductile.plugin",
        manifest_version=1,
        protocol=2,
        name="echo",
        version="1",
        entrypoint="none",
        description="Gives its arguments back. Runs inside the gateway, for benchmarks and tests.",
        output="trusted",
        commands=(
            Command(name="handle", type="read", description="Gives its arguments back.", input_schema=anything),
            Command(
                name="write",
                type="write",
                description="The same, declared as a command that changes something.",
                input_schema=anything,
            ),
        ),
    )
    return {echo.name: echo}
