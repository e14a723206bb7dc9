"""The settings in docs/DUCTILE.md are valid, and agree with the sample configuration of Ductile."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_service.settings import TokenSettings
from ductile_gateway.installation.configuration import Generation, read_config
from ductile_gateway.installation.rendering import Options, render, template_values
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.webhooks.settings import EventMapping, IngressSettings, OutboundSettings
from tests.ductile.guide import PASSING_ON, RELAY, SAMPLES, SETTINGS, shown, shown_peer

GENERATIONS = pytest.mark.parametrize("generation", ["m", "n"])


def sample(generation: Generation, file: str) -> Any:
    return yaml.safe_load((SAMPLES / f"config-{generation}" / file).read_text(encoding="utf-8"))


def test_the_guide_shows_settings_that_exist() -> None:
    settings, relayed = shown(SETTINGS), shown(RELAY)["gateway"]
    gateway = GatewaySettings.model_validate(settings["gateway"])
    assert TokenSettings.model_validate(settings["agent"]["http"]["tokens"][0]).scopes == {"wake"}
    assert gateway.runner == "ductile"
    assert all(tool.commands for tool in (gateway.choices() or {}).values())
    settings["gateway"]["ductile"]["relay"] = relayed["ductile"]["relay"]
    by_events = GatewaySettings.model_validate(settings["gateway"] | {"tools": relayed["tools"]})
    relay = by_events.ductile and by_events.ductile.relay
    assert relay
    assert relay.event_types() == {"save-note": "agentic.tool_request.save-note"}


def test_the_guide_shows_how_an_answer_is_taken_that_its_pipeline_passes_on() -> None:
    keys = shown(SETTINGS)["gateway"]["ingress"]["peers"]["ductile"]["keys"]
    peer = IngressSettings.model_validate({"peers": {"ductile": {"keys": keys} | shown_peer()}}).peers["ductile"]
    (pipeline,) = shown(PASSING_ON)
    (step,) = pipeline["steps"]
    answer = peer.events[step["relay"]["event"]]
    assert isinstance(answer, EventMapping)
    assert answer.kind == "answer"
    assert set(step["relay"]["with"]) == {"run_id", "answer"}


@GENERATIONS
def test_the_guide_and_what_is_added_mean_the_same_addresses_and_names(tmp_path: Path, generation: Generation) -> None:
    gateway, config = shown(SETTINGS)["gateway"], sample(generation, "config.yaml")
    folder = shutil.copytree(SAMPLES / f"config-{generation}", tmp_path / "ductile")
    (folder / "people.yaml").write_text("api: {auth: {tokens: [{token: t, scopes: ['*']}]}}")  # made by hand
    found, options = read_config(folder), Options(outcomes=Path("/var/lib/ductile/outcomes"), webhook=True)
    values = template_values(found, options, found.agentic_folder / "tokens.yaml")
    installed, yours = (yaml.safe_load(render(name, values)) for name in ("agentic.yaml", "yours.yaml"))
    relay, ingress = OutboundSettings.model_validate(gateway["outbound"]).relay, gateway["ingress"]
    (peer,) = (installed["remote_ingress"] | yours["remote_ingress"])["peers"]
    (instance,) = (installed | yours)["instances"]
    assert relay is not None
    assert (relay.peer, relay.key_id, set(relay.types)) == (peer["name"], peer["key_id"], set(peer["accept"]))
    assert relay.url.rstrip("/") == gateway["ductile"]["url"] == f"http://{config['api']['listen']}"
    assert instance["base_url"] == f"http://127.0.0.1:{ingress['port']}"
    assert ingress["peers"][config["service"]["name"]]["accept"] == instance["allow"]
    assert ingress["peers"][config["service"]["name"]]["keys"][0]["id"] == instance["key_id"]


@GENERATIONS
def test_every_tool_of_the_guide_is_in_the_sample_and_only_reads_and_every_included_file_is_there(
    generation: Generation,
) -> None:
    plugins = sample(generation, "plugins.yaml")["plugins"]
    for name, tool in shown(SETTINGS)["gateway"]["tools"].items():
        manifest = yaml.safe_load((SAMPLES / "plugins" / name / "manifest.yaml").read_text(encoding="utf-8"))
        tiers = {command["name"]: command["type"] for command in manifest["commands"]}
        assert name in plugins
        assert {tiers[command] for command in tool["commands"]} == {"read"}
    for file in SAMPLES.glob(f"config-{generation}/**/*.yaml"):
        included = set(yaml.safe_load(file.read_text()).get("include", [])) - {"people.yaml"}  # made by hand
        assert [name for name in included if not (file.parent / name).exists()] == []
