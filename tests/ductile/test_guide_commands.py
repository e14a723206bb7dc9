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

from tests.ductile.guide import GUIDE, Place, Terminal, commands, place
from tests.ductile.sample_house import ROOT, SAMPLES
from tests.kit.waiting import wait_until

needs_ductile = pytest.mark.skipif(
    "DUCTILE_BIN" not in os.environ, reason="no Ductile: bring a Ductile binary and set DUCTILE_BIN to its path"
)

# How each block begins
DEV = ". .venv/bin/activate\nagentic dev\n"
DUE_NOW = "sed -i.bak"
LOCK_CHECK_START = "set -a; . ~/ductile.env; set +a\nductile config lock --config ~/ductile && "
LOOK = "set -a; . ~/ductile.env; set +a\nductile job logs"
CRON_BACK = "mv ~/ductile/agentic/agentic.yaml.bak"
PEOPLES_SECRET = "(umask 077; set -C; echo"  # noqa: S105 - how the block begins
NATS = "nats-server "
VARIABLES = ". .venv/bin/activate; set -a;"
SETUP, GATEWAY, AGENT, DOCTOR = "agentic setup", "ductile-gateway serve", "agentic serve", "agentic doctor"
ORDER = "body="
OWN_FOLDER, OWN_TOKENS = "mkdir ~/ductile/agentic && ", "[ -e ~/ductile/tokens.yaml ]"
WHOLE = "mkdir ~/ductile && "
SECRETS = "(umask 077; set -C; cat > ~/ductile.env"
STEP_BY_STEP = "set -a; . ~/ductile.env; set +a\nductile config lock  "
WEBHOOK_SECRET = 'echo "DUCTILE_WEBHOOK_SECRET='  # noqa: S105 - as above
ALL = (
    *(
        DEV,
        DUE_NOW,
        LOCK_CHECK_START,
        LOOK,
        CRON_BACK,
        PEOPLES_SECRET,
        NATS,
        VARIABLES,
        SETUP,
        GATEWAY,
        AGENT,
        DOCTOR,
        ORDER,
    ),
    *(OWN_FOLDER, OWN_TOKENS, WHOLE, SECRETS, STEP_BY_STEP, WEBHOOK_SECRET),
)
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
def test_agents_are_added_to_a_configuration_of_ones_own_and_nothing_in_it_is_lost(there: Place) -> None:
    ductile = _someones_ductile(there)
    before = {file: file.read_bytes() for file in ductile.rglob("*") if file.is_file()}
    _lock_and_stop(there)
    shell = there.terminal()
    for beginning in (OWN_FOLDER, OWN_TOKENS, SECRETS):
        shell.run(there.block(beginning))
    assert {file: file.read_bytes() for file in before} == before
    entry = yaml.safe_load((SAMPLES / "config-m" / "tokens.yaml").read_text())["tokens"][0]
    there.change(ductile / "tokens.yaml", lambda tokens: tokens["tokens"].append(entry))
    there.change(ductile / "config.yaml", lambda config: config["include"].append("agentic/agentic.yaml"))
    again = there.terminal()
    again.start(there.block(OWN_FOLDER))
    wait_until(lambda: "File exists" in again.printed(), again.printed)
    _first_scheduled_run(there, shell)
    assert _asked(there, OPERATOR, "/plugins").status_code == 200
    assert [job["status"] for job in _asked(there, OPERATOR, "/jobs?plugin=agentic-wake").json()["jobs"]] == [
        "succeeded"
    ]


@pytest.mark.ductile
@needs_ductile
def test_the_guide_leads_from_nothing_to_outcomes_in_earnest(there: Place) -> None:
    shell = there.terminal()
    for beginning in (WHOLE, SECRETS, WEBHOOK_SECRET):
        shell.run(there.block(beginning))
    config = there.home / "ductile" / "config.yaml"
    there.change(config, lambda content: content["include"].append("webhooks.yaml"))
    there.change(config, lambda content: content["service"].update(tick_interval="500ms"))
    dev = _first_scheduled_run(there, shell)
    dev.interrupt()
    there.terminal().run(there.block(PEOPLES_SECRET))
    (there.repository / "agentic.yaml").write_text(_settings(there))
    nats = there.terminal()
    nats.start(there.block(NATS))
    wait_until(lambda: _listens(there.ports["4222"]), nats.printed)
    looking, *services = (there.terminal() for _ in range(3))
    for one in (looking, *services):
        one.run(there.block(VARIABLES))
    looking.run(there.block(SETUP))
    for one, beginning in zip(services, (GATEWAY, AGENT), strict=True):
        one.start(there.block(beginning))
    wait_until(lambda: _is_ready(there), lambda: "".join(one.printed() for one in services), within_s=60)
    said = looking.run(there.block(DOCTOR))
    assert "✗" not in said, said
    ordered = looking.run(there.block(ORDER))
    assert "job_id" in ordered, ordered
    outcomes = there.folder / "outcomes"
    wait_until(lambda: bool(list(outcomes.iterdir())), lambda: looking.run("agentic runs"), within_s=60)


def _first_scheduled_run(there: Place, shell: Terminal) -> Terminal:
    """Steps 1, 3, 4 and 5 of the guide; returns the terminal of the agent."""
    dev = there.terminal()
    dev.start(there.block(DEV))
    wait_until(lambda: _is_ready(there), dev.printed, within_s=60)
    shell.run(there.block(DUE_NOW))
    shell.start(there.block(LOCK_CHECK_START))
    runs: list[dict[str, Any]] = []

    def woken() -> bool:
        runs[:] = httpx2.get(f"{there.url('8700')}/v1/runs", trust_env=False).json()["runs"]
        return bool(runs)

    wait_until(woken, shell.printed, within_s=60)
    look = there.terminal().run(there.block(LOOK).replace("RUN", runs[0]["run_id"]))
    assert "agentic-wake" in look
    assert runs[0]["run_id"] in look
    there.terminal().run("set -a; . ~/ductile.env; set +a\n" + there.block(CRON_BACK))
    assert "cron:" in (there.home / "ductile" / "agentic" / "agentic.yaml").read_text()
    return dev


def _someones_ductile(there: Place) -> Path:
    ductile = there.home / "ductile"
    (ductile / "plugins").mkdir(parents=True)
    own = yaml.safe_load(json.dumps(OWN))
    own["config.yaml"]["api"]["listen"] = f"127.0.0.1:{there.ports['8080']}"
    for name, content in own.items():
        (ductile / name).write_text(yaml.safe_dump(content))
    there.terminal().run(f"cp -R {SAMPLES}/plugins/echo {ductile}/plugins/ && chmod -R go-w {ductile}")
    return ductile


def _lock_and_stop(there: Place) -> None:
    """It was locked before anybody thought of agents."""
    there.terminal().run("ductile config lock --config ~/ductile && ductile config check --config ~/ductile")


def _settings(there: Place) -> str:
    """The settings that the guide shows, with the addresses of this place."""
    shown = (ROOT / GUIDE).read_text(encoding="utf-8").split("```yaml\n")[1].partition("```")[0]
    settings = yaml.safe_load(there.here(shown))
    settings["agent"]["http"]["port"] = there.ports["8700"]
    settings["nats"] = {"urls": [f"nats://127.0.0.1:{there.ports['4222']}"]}
    return yaml.safe_dump(settings)


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
