"""What docs/DUCTILE.md shows as settings are settings, and they agree with the sample configuration of Ductile."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_service.admission.callers import TokenSettings
from ductile_gateway.ingress.settings import IngressSettings, ToSignal
from ductile_gateway.installation.found import Generation
from ductile_gateway.outbound.settings import OutboundSettings
from ductile_gateway.settings import GatewaySettings
from tests.ductile.sample_house import (
    SAMPLES,
    guide_passing_on,
    guide_peer,
    guide_relay,
    guide_settings,
    page_added,
)

GENERATIONS: tuple[Generation, ...] = ("m", "n")


@pytest.fixture
def shown() -> Any:
    return guide_settings()


def sample(generation: Generation, file: str) -> Any:
    return yaml.safe_load((SAMPLES / f"config-{generation}" / file).read_text(encoding="utf-8"))


def test_the_guide_shows_settings_that_exist(shown: Any) -> None:
    gateway = GatewaySettings.model_validate(shown["gateway"])
    assert TokenSettings.model_validate(shown["agent"]["http"]["tokens"][0]).scopes == {"wake"}
    assert gateway.runner == "ductile"
    assert all(tool.commands for tool in (gateway.choices() or {}).values())


def test_the_guide_shows_how_an_answer_is_taken_that_its_pipeline_passes_on(shown: Any) -> None:
    keys = shown["gateway"]["ingress"]["peers"]["ductile"]["keys"]
    peer = IngressSettings.model_validate({"peers": {"ductile": {"keys": keys} | guide_peer()}}).peers["ductile"]
    (pipeline,) = yaml.safe_load(guide_passing_on())["pipelines"]
    (step,) = pipeline["steps"]
    answer = peer.events[step["relay"]["event"]]
    assert isinstance(answer, ToSignal)
    assert answer.kind == "answer"
    assert {"run_id", "answer"} == set(step["relay"]["with"])


def test_the_guide_shows_a_tool_that_is_called_by_events(shown: Any) -> None:
    relayed, gateway = guide_relay(), shown["gateway"]
    gateway["ductile"]["relay"] = relayed["ductile"]["relay"]
    settings = GatewaySettings.model_validate(gateway | {"tools": relayed["tools"]})
    assert settings.ductile is not None
    assert settings.ductile.relay is not None
    assert settings.ductile.relay.event_types() == {"save-note": "agentic.tool_request.save-note"}
    assert settings.ductile.relay.secret.get_secret_value() in settings.secrets()


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_guide_and_what_is_added_mean_the_same_addresses_and_names(shown: Any, generation: Generation) -> None:
    gateway, config, added = shown["gateway"], sample(generation, "config.yaml"), page_added(generation)
    relay, ingress = OutboundSettings.model_validate(gateway["outbound"]).relay, gateway["ingress"]
    (peer,) = added["remote_ingress"]["peers"]
    (instance,) = added["instances"]
    assert relay is not None
    assert (relay.peer, relay.key_id, set(relay.types)) == (peer["name"], peer["key_id"], set(peer["accept"]))
    assert relay.url.rstrip("/") == gateway["ductile"]["url"] == f"http://{config['api']['listen']}"
    assert instance["base_url"] == f"http://127.0.0.1:{ingress['port']}"
    assert ingress["peers"][config["service"]["name"]]["accept"] == instance["allow"]
    assert ingress["peers"][config["service"]["name"]]["keys"][0]["id"] == instance["key_id"]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_tool_of_the_guide_is_in_the_sample_and_only_reads(shown: Any, generation: Generation) -> None:
    plugins = sample(generation, "plugins.yaml")["plugins"]
    for name, tool in shown["gateway"]["tools"].items():
        manifest = yaml.safe_load((SAMPLES / "plugins" / name / "manifest.yaml").read_text(encoding="utf-8"))
        tiers = {command["name"]: command["type"] for command in manifest["commands"]}
        assert name in plugins
        assert {tiers[command] for command in tool["commands"]} == {"read"}


@pytest.mark.parametrize(
    "file", sorted(SAMPLES.glob("config-*/**/*.yaml")), ids=lambda file: f"{file.parent.name}/{file.name}"
)
def test_every_sample_is_yaml_and_every_included_file_is_there(file: Path) -> None:
    content = yaml.safe_load(file.read_text())
    made_by_hand = {"people.yaml"}
    assert all((file.parent / name).exists() for name in set(content.get("include", [])) - made_by_hand)
