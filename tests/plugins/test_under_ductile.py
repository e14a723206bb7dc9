"""The shipped plugins under a real Ductile: they are accepted, and their answers survive as they are."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.calls.call import ToolOutcome
from tests.ductile.real import RealDuctile, real_ductile
from tests.gateway.plugins.kit import local_plugins
from tests.gateway.plugins.kit import probe as probe_call
from tests.kit.waiting import wait_until
from tests.plugins.asking import PROBE

pytestmark = real_ductile


@pytest.fixture(scope="module")
def ductile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A client of a running Ductile with the shipped plugins, and the probe that shows what it is given."""
    with closing(RealDuctile(tmp_path_factory.mktemp("ductile"), probe=PROBE)) as running:
        headers = {"Authorization": f"Bearer {running.token}"}
        with httpx2.Client(base_url=running.url, headers=headers, trust_env=False) as client:
            yield client


def job(client: httpx2.Client, plugin: str, payload: dict[str, Any], *, command: str = "handle") -> dict[str, Any]:
    started = client.post(f"/plugin/{plugin}/{command}", json={"payload": payload})
    assert started.status_code == 202, started.text
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(client.get(f"/job/{started.json()['job_id']}").json())
        return found["status"] not in ("queued", "running")

    wait_until(ended, lambda: f"{plugin} did not finish: {found}")
    return found


READING = {
    "artifact": ("read", "search"),
    **dict.fromkeys(("echo", "fetch", "text-report"), ("handle",)),
    "knowledge": ("search",),
    "z3-solver": ("solve",),
}


def test_ductile_serves_the_manifests_with_their_full_schemas(ductile: httpx2.Client) -> None:
    for plugin, commands in READING.items():
        told = {one["name"]: one for one in ductile.get(f"/plugin/{plugin}").json()["commands"]}
        for command in commands:
            schema = told[command]["input_schema"]
            assert (told[command]["type"], schema["additionalProperties"]) == ("read", False)
            assert schema.keys() & {"required", "anyOf"}


def test_a_page_is_fetched_and_reported_on_with_artifacts_intact(ductile: httpx2.Client) -> None:
    fetched = job(ductile, "fetch", {"url": str(ductile.base_url.join("/healthz"))})
    assert fetched["status"] == "succeeded", fetched
    (page,) = fetched["result"]["artifacts"]
    assert json.loads(page["text"])["status"] == "ok"
    artifact = {"path": "artifacts/a.md", "content_type": "text/markdown", "text": "# Grüße\n\nThis is a short text."}
    reported = job(ductile, "text-report", {"artifact": artifact})["result"]
    assert reported["artifacts"][0]["name"] == "critique.md"
    assert "“Grüße”" in reported["artifacts"][0]["text"]


@pytest.mark.parametrize("command", ["handle", "show"])
def test_what_we_ask_a_plugin_ourselves_is_part_of_what_ductile_asks(
    ductile: httpx2.Client, tmp_path: Path, command: str
) -> None:
    theirs = job(ductile, "probe", {"word": "hello"}, command=command)["result"]["output"]["request"]
    assert theirs["config"].keys() == {"executions"}
    outcome = asyncio.run(local_plugins(tmp_path, config=theirs["config"]).run(probe_call(command, word="hello")))
    assert isinstance(outcome, ToolOutcome)
    ours: Any = outcome.output["request"]
    assert ours.keys() <= theirs.keys()
    for request in (ours, theirs):
        for name in ("job_id", "deadline_at"):
            assert isinstance(request.pop(name), str)
        # What Ductile adds of its own: the plugin's name as context, also merged into an event's payload.
        request.get("event", {}).get("payload", {}).pop("ductile_plugin", None)
    assert ours == {name: theirs[name] for name in ours}
