"""The shipped plugins under a real Ductile: they are accepted, and their answers survive as they are."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import ToolOutcome
from tests.ductile.real import RealDuctile, real_ductile
from tests.ductile.under_test import called, client, finished
from tests.gateway.parts import unrecorded
from tests.gateway.plugins.kit import local_plugins
from tests.gateway.plugins.kit import probe as probe_call
from tests.plugins.asking import PROBE

pytestmark = real_ductile


@pytest.fixture(scope="module")
def ductile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealDuctile]:
    """With the shipped plugins, and the probe that shows what it is given."""
    with RealDuctile(tmp_path_factory.mktemp("ductile"), probe=PROBE) as running:
        yield running


def job(ductile: RealDuctile, plugin: str, command: str = "handle", **payload: Any) -> dict[str, Any]:
    return finished(ductile, called(ductile, command, plugin=plugin, **payload))


READING = {
    "artifact": ("read", "search"),
    **dict.fromkeys(("echo", "fetch", "text-report"), ("handle",)),
    "knowledge": ("search",),
    "z3-solver": ("solve",),
}


def test_ductile_serves_the_manifests_with_their_full_schemas(ductile: RealDuctile) -> None:
    with client(ductile) as http:
        manifests = {plugin: http.get(f"/plugin/{plugin}").json()["commands"] for plugin in READING}
    for plugin, commands in READING.items():
        told = {one["name"]: one for one in manifests[plugin]}
        for command in commands:
            schema = told[command]["input_schema"]
            assert (told[command]["type"], schema["additionalProperties"]) == ("read", False)
            assert schema.keys() & {"required", "anyOf"}


def test_a_page_is_fetched_and_reported_on_with_artifacts_intact(ductile: RealDuctile) -> None:
    fetched = job(ductile, "fetch", url=f"{ductile.url}/healthz")
    assert fetched["status"] == "succeeded", fetched
    (page,) = fetched["result"]["artifacts"]
    assert json.loads(page["text"])["status"] == "ok"
    artifact = {"path": "artifacts/a.md", "content_type": "text/markdown", "text": "# Grüße\n\nThis is a short text."}
    reported = job(ductile, "text-report", artifact=artifact)["result"]
    assert reported["artifacts"][0]["name"] == "critique.md"
    assert "“Grüße”" in reported["artifacts"][0]["text"]


@pytest.mark.parametrize("command", ["handle", "show"])
def test_what_we_ask_a_plugin_ourselves_is_part_of_what_ductile_asks(
    ductile: RealDuctile, tmp_path: Path, command: str
) -> None:
    theirs = job(ductile, "probe", command, word="hello")["result"]["output"]["request"]
    assert theirs["config"].keys() == {"executions"}
    ours_alone, asked = local_plugins(tmp_path, config=theirs["config"]), probe_call(command, word="hello")
    outcome = asyncio.run(ours_alone.run(asked, unrecorded))
    assert isinstance(outcome, ToolOutcome)
    ours: Any = outcome.output["request"]
    assert ours.keys() <= theirs.keys()
    for request in (ours, theirs):
        for name in ("job_id", "deadline_at"):
            assert isinstance(request.pop(name), str)
        # What Ductile adds of its own: the plugin's name as context, also merged into an event's payload.
        request.get("event", {}).get("payload", {}).pop("ductile_plugin", None)
    assert ours == {name: theirs[name] for name in ours}
