"""deploy/compose fits together, and fits the servers and services that it runs."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from groundwork.service import keys
from tests.deploy.servers import read_by_nats

FOLDER = Path("deploy/compose")
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
SETTINGS = (FOLDER / "agentic.yaml").read_text(encoding="utf-8")
SERVERS = {name: service for name, service in COMPOSE["services"].items() if name.startswith("nats-")}
OURS = {name: service for name, service in COMPOSE["services"].items() if name not in SERVERS}


def test_the_servers_read_their_settings_and_are_each_others_routes() -> None:
    read = read_by_nats(FOLDER / "nats.conf")
    assert read.returncode == 0, read.stderr
    text = (FOLDER / "nats.conf").read_text()
    assert all(f"nats://{name}:6222" in text for name in SERVERS)
    assert [service["environment"]["SERVER_NAME"] for service in SERVERS.values()] == list(SERVERS)
    assert len({volume for service in SERVERS.values() for volume in service["volumes"]}) == len(SERVERS) == 3


def test_nobody_but_this_machine_is_let_in() -> None:
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.parametrize("kind", ["configs", "secrets", "networks"])
def test_what_a_service_names_is_there(kind: str) -> None:
    named = {name_of(entry) for service in COMPOSE["services"].values() for entry in service.get(kind, ())}
    assert named == set(COMPOSE[kind])
    assert all((FOLDER / entry["file"]).exists() for entry in COMPOSE["configs"].values())
    assert {name for service in OURS.values() for name in service.get("depends_on", ())} <= set(COMPOSE["services"])


def test_what_keys_sh_makes_is_all_that_has_to_be_known(tmp_path: Path) -> None:
    made = subprocess.run(["sh", FOLDER / "keys.sh"], capture_output=True, text=True, check=True)
    known = {name: value.strip('"') for name, _, value in (line.partition("=") for line in made.stdout.splitlines())}
    demanded = {name for name in known if f"${{{name}:?" in json.dumps(COMPOSE)}
    assert demanded | {secret["environment"] for secret in COMPOSE["secrets"].values()} == set(known)
    for name in ("KEYS_OF_AGENTS", "KEYS_OF_GATEWAYS"):
        file = tmp_path / name
        file.write_text(known[name])
        assert len(keys.read(file)) == 1
    assert demanded == set(re.findall(r"\$\{(\w+)\}", SETTINGS))


def name_of(entry: Any) -> str:
    return str(entry["source"] if isinstance(entry, dict) else entry)
