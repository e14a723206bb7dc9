"""deploy/compose/beside-a-ductile fits together, fits its services, and listens on its own machine alone."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.inside import agent_inside, gateway_inside
from tests.deploy.servers import read_by_nats
from tests.deploy.test_compose import name_of

FOLDER = Path("deploy/compose/beside-a-ductile")
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
SETTINGS = (FOLDER / "agentic.yaml").read_text(encoding="utf-8")


def known() -> dict[str, str]:
    """What stands in .env as README.md has it made."""
    made = subprocess.run(["sh", f"{FOLDER}/keys.sh"], capture_output=True, text=True, check=True).stdout
    return dict(line.split("=") for line in made.splitlines()) | {"DUCTILE_TOKEN": "the token that Ductile knows"}


def environment(service: str) -> dict[str, str]:
    """As the service is given it, with what stands in .env."""
    given = COMPOSE["services"][service]["environment"].items()
    return {
        name: re.sub(r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda f: known().get(f[1], f[2]), text) for name, text in given
    }


@pytest.mark.parametrize("kind", ["configs", "secrets", "volumes"])
def test_what_a_service_names_is_there(kind: str) -> None:
    entries = [entry for service in COMPOSE["services"].values() for entry in service.get(kind, ())]
    assert {name_of(entry).split(":")[0] for entry in entries} == set(COMPOSE[kind])
    assert all((FOLDER / entry["file"]).exists() for entry in COMPOSE["configs"].values())


def test_what_keys_sh_makes_and_ductile_knows_is_all_that_has_to_be_known() -> None:
    demanded = set(re.findall(r"\$\{(\w+):\?", json.dumps(COMPOSE)))
    assert demanded == set(known())
    assert {secret["environment"] for secret in COMPOSE["secrets"].values()} <= demanded


def test_the_services_read_their_settings(tmp_path: Path) -> None:
    agent = agent_inside(SETTINGS, environment("agent"), tmp_path)
    gateway = gateway_inside(SETTINGS, environment("gateway"), tmp_path)
    assert agent.nats.urls == gateway.nats.urls == ("nats://127.0.0.1:4222",)
    assert gateway.ductile
    assert gateway.ductile.url == "http://127.0.0.1:8080"
    assert float(COMPOSE["services"]["gateway"]["stop_grace_period"].rstrip("s")) > gateway.grace_s
    volumes = {name: COMPOSE["services"][name]["volumes"] for name in ("agent", "gateway")}
    assert volumes == {"agent": ["agent:/var/lib/agentic"], "gateway": ["gateway:/var/lib/agentic"]}
    assert all(place.is_relative_to("/var/lib/agentic") for place in (agent.store, agent.workspaces, gateway.store))


def test_everything_listens_on_this_machine_alone(tmp_path: Path) -> None:
    agent = agent_inside(SETTINGS, environment("agent"), tmp_path)
    gateway = gateway_inside(SETTINGS, environment("gateway"), tmp_path)
    read = read_by_nats(FOLDER / "nats.conf")
    assert read.returncode == 0, read.stderr
    listening = re.findall(r'^(?:listen|http): "([^"]+):\d+"', (FOLDER / "nats.conf").read_text(), re.MULTILINE)
    assert {agent.http.host, gateway.http.host, gateway.ingress.host, *listening} == {"127.0.0.1"}
    services = COMPOSE["services"]
    assert "--web.listen-address=127.0.0.1:9090" in services["prometheus"]["command"]
    assert services["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert services["jaeger"]["environment"] == {"JAEGER_LISTEN_HOST": "127.0.0.1"}
    assert not any("ports" in service for service in services.values())


def test_a_service_may_do_nothing_that_it_does_not_need() -> None:
    for service in COMPOSE["services"].values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
