"""docs/DUCTILE.md and deploy/ductile/README.md followed to the letter: all their commands, by a real Ductile."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.ductile.guide import Place, Terminal, commands, place
from tests.ductile.sample_house import SAMPLES
from tests.kit.waiting import wait_until

needs_ductile = pytest.mark.skipif(
    "DUCTILE_BIN" not in os.environ, reason="no Ductile: bring a Ductile binary and set DUCTILE_BIN to its path"
)

# How each block begins
LOOK_FIRST = "agentic ductile install ~/ductile --dry-run"
ADD = "agentic ductile install ~/ductile --yes --every"
START = "ductile system start"
NATS = "nats-server "
SETUP, GATEWAY, AGENT = "agentic setup", "ductile-gateway serve", "agentic serve"
LOOK = "ductile job logs"
REMOVE = "agentic ductile remove"
ORDER = "body="
WHOLE, ADD_TO_WHOLE = "mkdir ~/ductile && ", "mkdir ~/outcomes"
ALL = (LOOK_FIRST, ADD, START, NATS, SETUP, GATEWAY, AGENT, LOOK, REMOVE, ORDER, WHOLE, ADD_TO_WHOLE)
OPERATOR = "the-token-of-whoever-was-there-before"
OWN = {
    "config.yaml": {
        "include": ["plugins.yaml", "tokens.yaml"],
        "service": {"name": "ductile", "tick_interval": "500ms", "strict_mode": True},
        "state": {"path": "./data/state.db"},
        "plugin_roots": ["./plugins"],
        "api": {"enabled": True, "auth": {"tokens": [{"token": OPERATOR, "scopes": ["*"]}]}},
    },
    "plugins.yaml": {"plugins": {"echo": {"enabled": True}}},
    "tokens.yaml": {"tokens": [{"name": "mine", "key": "a-secret-of-my-own"}]},
}
"""A configuration that somebody has already."""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Place]:
    with place(tmp_path) as made:
        yield made


def test_every_command_that_the_guide_shows_is_run_here() -> None:
    shown = commands()
    assert [block for block in shown if not block.startswith(ALL)] == []
    assert len(shown) == len(ALL)


@pytest.mark.ductile
@needs_ductile
def test_agents_are_added_to_a_ductile_that_somebody_has_and_taken_out_to_the_byte(there: Place) -> None:
    ductile = _someones_ductile(there)
    there.terminal().run("ductile config lock --config ~/ductile && ductile config check --config ~/ductile")
    before = _files(ductile)
    shell = there.terminal()
    assert "+  - agentic/agentic.yaml" in shell.run(there.block(LOOK_FIRST)).replace("+- ", "+  - ")
    assert _files(ductile) == before
    shell.run(there.block(ADD))
    _use_ports_of(there)
    ductiles = there.terminal()
    ductiles.start(there.block(START))
    with_services = _services(there)
    wait_until(lambda: bool(_woken(there)), lambda: ductiles.printed() + with_services.printed(), within_s=60)
    said = with_services.run(there.block(LOOK))
    assert "agentic-wake" in said
    assert "✗" not in said, said
    assert _asked(there, OPERATOR, "/plugins").status_code == 200
    assert shell.run(there.block(REMOVE))
    ductiles.interrupt()
    shell.run(there.block(REMOVE).replace("--dry-run", "--yes"))
    assert _files(ductile) == before


@pytest.mark.ductile
@needs_ductile
def test_the_guide_leads_from_nothing_to_kept_outcomes(there: Place) -> None:
    shell = there.terminal()
    shell.run(there.block(WHOLE))
    webhooks = {"listen": f"127.0.0.1:{there.ports['8081']}"}
    there.change(there.home / "ductile" / "config.yaml", lambda config: config.update(webhooks=webhooks))
    shell.run("ductile config lock --config ~/ductile")
    shell.run(there.block(ADD_TO_WHOLE))
    _use_ports_of(there)
    ductiles = there.terminal()
    ductiles.start(there.block(START))
    services = _services(there)
    ordered = services.run(there.block(ORDER))
    assert "job_id" in ordered, ordered
    outcomes = there.home / "outcomes"
    wait_until(lambda: bool(list(outcomes.iterdir())), ductiles.printed, within_s=60)


def _files(folder: Path) -> dict[Path, bytes]:
    """But for what Ductile itself keeps."""
    files = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file: file.read_bytes() for file in files if file.name != ".checksums" and "data" not in file.parts}


def _use_ports_of(there: Place) -> None:
    """Beside what the installation wrote: where NATS is."""
    settings = there.repository / "agentic.yaml"
    settings.write_text(f"{settings.read_text()}nats: {{urls: ['nats://127.0.0.1:{there.ports['4222']}']}}\n")


def _services(there: Place) -> Terminal:
    """NATS, the gateway and the agent, each in its terminal; returns another one."""
    nats, looking, *services = (there.terminal() for _ in range(4))
    nats.start(there.block(NATS))
    wait_until(lambda: _listens(there.ports["4222"]), nats.printed)
    looking.run(there.block(SETUP))
    for one, beginning in zip(services, (GATEWAY, AGENT), strict=True):
        one.start(there.block(beginning))
    wait_until(lambda: _is_ready(there), lambda: "".join(one.printed() for one in services), within_s=60)
    return looking


def _woken(there: Place) -> list[Any]:
    token = (there.repository / ".agentic" / "secrets" / "people").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    runs: list[Any] = httpx2.get(f"{there.url('8700')}/v1/runs", headers=headers, trust_env=False).json()["runs"]
    return runs


def _someones_ductile(there: Place) -> Path:
    ductile = there.home / "ductile"
    (ductile / "plugins").mkdir(parents=True)
    own = yaml.safe_load(json.dumps(OWN))
    own["config.yaml"]["api"]["listen"] = f"127.0.0.1:{there.ports['8080']}"
    for name, content in own.items():
        (ductile / name).write_text(yaml.safe_dump(content))
    there.terminal().run(f"cp -R {SAMPLES}/plugins/echo {ductile}/plugins/ && chmod -R go-w {ductile}")
    there.terminal().run(f"chmod 600 {ductile}/tokens.yaml")
    return ductile


def _asked(there: Place, token: str, path: str) -> httpx2.Response:
    return httpx2.get(there.url("8080") + path, headers={"Authorization": f"Bearer {token}"}, trust_env=False)


def _is_ready(there: Place) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(f"{there.url('8700')}/readyz", trust_env=False).is_success
    return False


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
