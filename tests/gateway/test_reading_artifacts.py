"""How to get the rest of what was cut: the gateway, the artifact plugin, and no result that is cut again."""

import hashlib
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from ductile_gateway.calls.call import ToolOutcome
from ductile_gateway.plugins.boxes import Box
from ductile_gateway.plugins.folders import discover_plugins
from ductile_gateway.plugins.process import plugin_environment
from ductile_gateway.plugins.runner import LocalPlugins
from ductile_gateway.tools.catalog import draw_catalog
from schemas.events import ToolResult
from tests.gateway.parts import CATALOG, RUN, FakeRunner, World, a_request, asked_for
from tests.gateway.served import ROOT


class Reader:
    """Reads artifacts of the run through a gateway with the shipped plugins."""

    def __init__(self, folder: Path) -> None:
        plugins = discover_plugins([ROOT / "deploy" / "ductile" / "plugins"], {}).plugins
        manifests = {name: plugin.manifest for name, plugin in plugins.items()}
        self.catalog, problems = draw_catalog(manifests, None, timeout_s=60)
        assert problems == ()
        environment = plugin_environment(os.environ, python=Path(sys.executable))
        self.world = World(runner=LocalPlugins(plugins, state_dir=folder, environment=environment, box=Box()))
        self.world.clock.time = datetime.now(UTC)

    def keep(self, path: str, content: bytes) -> None:
        self.world.artifacts.kept[RUN, path.removeprefix("artifacts/")] = content, "text/plain"

    async def ask(self, command: str, **arguments: Any) -> ToolResult:
        request = a_request(command, arguments, tool="artifact", step=len(self.world.bus.results) + 1)
        await self.world.relay(self.catalog).take(asked_for(request, "artifact"))
        result: ToolResult = self.world.bus.results[-1]
        return result

    async def shown(self, command: str, **arguments: Any) -> dict[str, Any]:
        result = (await self.ask(command, **arguments)).result
        assert result is not None
        return result.model_dump(exclude_none=True)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


async def test_the_rest_of_a_long_result_is_where_its_excerpt_says(tmp_path: Path) -> None:
    rows: list[JsonValue] = [{"name": f"row {number}"} for number in range(1000)]
    world = World(runner=FakeRunner(ToolOutcome("ok", text="1000 rows", output={"rows": rows})))
    await world.relay(CATALOG).take(asked_for())
    (cut,) = world.bus.results
    assert cut.result is not None
    head, _, note = (cut.result.excerpt or "").rpartition("\n")
    place = re.search(r"; the whole is the artifact (.*), which goes on at line (\d+), character (\d+)\]", note)
    assert place is not None
    path = place[1]
    reader = Reader(tmp_path)
    reader.world.artifacts = world.artifacts
    read = await reader.shown("read", artifact=path, from_line=int(place[2]), from_char=int(place[3]))
    _, stored = next(iter(world.artifacts.kept.items()))
    shown = read["summary"].partition("\n")[2].rpartition("\n")[0]
    assert stored[0].decode().startswith(head + shown)
    found = await reader.shown("search", artifact=path, pattern="row 999", context_lines=0)
    assert found["summary"].endswith(': "name": "row 999"')


@pytest.mark.parametrize("command", ["read", "search"])
@pytest.mark.parametrize(
    ("path", "error_class"),
    [
        ("artifacts/missing.txt", "not_found"),
        ("artifacts/logo.png", "invalid_arguments"),
        ("artifacts/../page.html", "invalid_arguments"),
        ("artifacts//etc/passwd", "invalid_arguments"),
        ("artifacts/%2e%2e", "invalid_arguments"),
        ("/etc/passwd", "invalid_arguments"),
        ("page.html", "invalid_arguments"),
        ("", "invalid_arguments"),
        ("artifacts/of-another-run.txt", "not_found"),
    ],
)
async def test_what_cannot_be_read_is_an_error_that_another_attempt_would_not_mend(
    reader: Reader, command: str, path: str, error_class: str
) -> None:
    reader.keep("artifacts/logo.png", b"\x89PNG\r\n\x1a\n")
    reader.world.artifacts.kept["run_other", "of-another-run.txt"] = b"secret", "text/plain"
    needed = {"pattern": "secret"} if command == "search" else {}
    error = (await reader.ask(command, artifact=path, **needed)).error
    assert error is not None
    assert (error.error_class, error.retryable) == (error_class, False)
    assert "artifact" in error.message


async def test_an_artifact_that_was_replaced_is_not_given_to_a_tool(reader: Reader) -> None:
    relayed = f"fetch-02-relayed-{hashlib.sha256(b'told').hexdigest()[:16]}.txt"
    await reader.world.ledger.name_artifacts(RUN, "call-1", [("a.md",)], [hashlib.sha256(b"told").hexdigest()], [4])
    for name in ("a.md", relayed):
        reader.keep(f"artifacts/{name}", b"told")
        assert (await reader.ask("read", artifact=f"artifacts/{name}")).error is None
        reader.keep(f"artifacts/{name}", b"forged")
        error = (await reader.ask("read", artifact=f"artifacts/{name}")).error
        assert error is not None
        assert (error.error_class, error.retryable) == ("artifact_changed", False)
