"""A real Ductile with a copy of the sample configuration, put in place as the README beside it says, and agents added.

The binary is not part of this repository: it is named by DUCTILE_BIN, and the folder of the plugins that come with it
by DUCTILE_PLUGINS. Without the latter a stand-in takes the place of Ductile's own file_handler.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import yaml

from agent_service.workbench.dev import free_port
from ductile_gateway.installation.found import Generation, find
from ductile_gateway.installation.installing import installation
from ductile_gateway.installation.pages import Wishes, rendered, values_of
from tests.kit.waiting import wait_until

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "deploy" / "ductile"
GATEWAY_TOKEN = "a-gateway-token-for-tests"  # noqa: S105 - as the next ones, of a server that lives for one test
OPERATOR_TOKEN = "an-operator-token-for-tests"  # noqa: S105
WAKE_TOKEN = "a-wake-token-for-tests-0123"  # noqa: S105
RUN_TOKEN = "a-run-token-for-tests-01234"  # noqa: S105
RELAY_SECRET = "a-relay-secret-for-tests"  # noqa: S105
AGENTIC_TOKEN = "a-token-of-people-for-tests"  # noqa: S105
WEBHOOK_SECRET = "a-webhook-secret-for-tests"  # noqa: S105
GITHUB_SECRET = "a-secret-shared-with-github"  # noqa: S105
CMS_SECRET = "whsec_YS1zZWNyZXQtb2YtYS1jbXMtZm9yLXRlc3Rz"  # noqa: S105
SECRETS = {
    "gateway": GATEWAY_TOKEN,
    "relay": RELAY_SECRET,
    "webhook": WEBHOOK_SECRET,
    "wake": WAKE_TOKEN,
    "run": RUN_TOKEN,
}
"""Those of the installation that tests know, by what it calls them."""
ENVIRONMENT = {
    "DUCTILE_GATEWAY_TOKEN": GATEWAY_TOKEN,
    "DUCTILE_RELAY_SECRET": RELAY_SECRET,
    "AGENTIC_WAKE_TOKEN": WAKE_TOKEN,
    "AGENTIC_RUN_TOKEN": RUN_TOKEN,
}
"""The same by the names that pages show."""
OF_THE_SERVICES = {
    "AGENTIC_TOKEN": AGENTIC_TOKEN,
    "GITHUB_WEBHOOK_SECRET": GITHUB_SECRET,
    "CMS_WEBHOOK_SECRET": CMS_SECRET,
}
"""What the environment of the agent and the gateway has besides."""
AGENTIC = "agentic/yours.yaml"
"""What of that which adds agents to any Ductile is for people to change."""
GOAL = "Fetch https://example.org/ and write a critique of the page in two paragraphs."
PAGES = "~/ductile/knowledge"
PATIENCE_S = 30.0
FILE_HANDLER = """#!/usr/bin/env python3
import json, pathlib, sys
payload = json.load(sys.stdin)["event"]["payload"]
pathlib.Path(payload["output_path"]).write_text(payload["content"])
json.dump({"status": "ok", "result": "written"}, sys.stdout)
"""
FILE_HANDLER_MANIFEST = {
    "manifest_spec": "ductile.plugin",
    "manifest_version": 1,
    "name": "file_handler",
    "version": "0.0.1",
    "protocol": 2,
    "entrypoint": "run.py",
    "commands": [{"name": "handle", "type": "write"}],
}


@dataclass(frozen=True, slots=True)
class SampleHouse:
    """A copy of the sample. `url`: where its Ductile listens once it is running; `orders`: and takes webhooks."""

    folder: Path
    url: str
    orders: str

    @property
    def outcomes(self) -> Path:
        return self.folder.parent / "outcomes"

    def change(self, file: str, change: Callable[[Any], None]) -> None:
        """Change the content of a file; to be locked again afterwards."""
        content = yaml.safe_load((self.folder / file).read_text())
        change(content)
        (self.folder / file).write_text(yaml.safe_dump(content))

    def include(self, file: str, content: str = "") -> None:
        """Have a file of the configuration read, after it is written where there is content for it."""
        if content:
            (self.folder / file).write_text(content)
        self.change("config.yaml", lambda config: config["include"].append(file))

    def command(self, *words: str, check: bool = True) -> str:
        """What a command of Ductile prints, run with this configuration."""
        command = [os.environ["DUCTILE_BIN"], *words, "--config", str(self.folder)]
        done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=check)
        return done.stdout + done.stderr

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Locked, checked and started; stopped with SIGTERM unless it has ended before."""
        self.command("config", "lock")
        self.command("config", "check")
        command = [os.environ["DUCTILE_BIN"], "system", "start", "--config", str(self.folder)]
        with (self.folder.parent / "log").open("ab") as log:
            process = subprocess.Popen(command, env=_environment(), stdout=log, stderr=log)
            try:
                self._until_healthy(process)
                yield process
            finally:
                process.terminate()
                process.wait(PATIENCE_S)

    def _until_healthy(self, process: "subprocess.Popen[bytes]") -> None:
        def healthy_or_ended() -> bool:
            with suppress(httpx2.TransportError):
                return httpx2.get(f"{self.url}/healthz", trust_env=False).is_success
            return process.poll() is not None

        def log() -> str:
            return f"Ductile did not start: {(self.folder.parent / 'log').read_text()[-2000:]}"

        wait_until(healthy_or_ended, log)
        assert process.poll() is None, log()

    def ask(self, method: str, path: str, *, token: str = OPERATOR_TOKEN, **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.request(method, self.url + path, headers=headers, trust_env=False, **options)

    def ended(self, job_id: str) -> dict[str, Any]:
        """The job, once it has ended."""
        found: dict[str, Any] = {}

        def has_ended() -> bool:
            found.update(self.ask("GET", f"/job/{job_id}").json())
            return found["status"] not in ("queued", "running")

        wait_until(has_ended, lambda: str(found))
        return found

    def jobs(self, plugin: str) -> list[dict[str, Any]]:
        """The jobs of a plugin, the newest first."""
        found: list[dict[str, Any]] = self.ask("GET", f"/jobs?plugin={plugin}").json()["jobs"]
        return found


def in_place(folder: Path, *, agent: str, gateway: str = "http://127.0.0.1:9", webhook: bool = True) -> SampleHouse:
    """A copy of the sample in `folder`: its own port, services elsewhere, a token for the test, the schedule due."""
    url, webhooks = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    house = SampleHouse(folder / "ductile", url, f"{webhooks}/webhook/agentic-wake")
    house.outcomes.mkdir(parents=True)
    shutil.copytree(SAMPLES / "config-m", house.folder)
    for plugin in (each for each in (SAMPLES / "plugins").iterdir() if not each.name.startswith("agentic-")):
        shutil.copytree(plugin, house.folder / "plugins" / plugin.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(SAMPLES.parent / "knowledge", house.folder / "knowledge")
    _add_file_handler(house.folder / "plugins" / "file_handler")
    _add_people(house.folder)
    pages = house.folder / "plugins.yaml"
    pages.write_text(pages.read_text().replace(PAGES, str(house.folder / "knowledge")))
    house.change("config.yaml", lambda content: _for_tests(content, house.url, webhooks))
    _add_agents(house, agent=agent, gateway=gateway, webhook=webhook)
    subprocess.run(["chmod", "-R", "go-w", folder], check=True)
    return house


def _add_people(folder: Path) -> None:
    people = {"api": {"auth": {"tokens": [{"token": OPERATOR_TOKEN, "scopes": ["*"]}]}}}
    (folder / "people.yaml").write_text(yaml.safe_dump(people))


def _add_agents(house: SampleHouse, *, agent: str, gateway: str, webhook: bool) -> None:
    secrets = house.folder.parent / "agent" / ".agentic" / "secrets"
    secrets.mkdir(parents=True)
    for name, value in SECRETS.items():
        (secrets / f"ductile.{name}").write_text(value)
    wishes = Wishes(
        agent=agent,
        gateway=gateway,
        settings=house.folder.parent / "agent" / "agentic.yaml",
        outcomes=house.outcomes,
        webhook=webhook,
        goal=GOAL,
        every="24h",
    )
    installation(find(house.folder), wishes).carry_out(None)
    house.change(AGENTIC, lambda content: content["plugins"]["agentic-wake"]["retry"].update(backoff_base="200ms"))


def page_added(generation: Generation) -> Any:
    """What is added to the sample of that generation."""
    with tempfile.TemporaryDirectory() as folder:
        sample = shutil.copytree(SAMPLES / f"config-{generation}", Path(folder) / "ductile")
        _add_people(sample)
        found = find(sample)
    values = values_of(
        found, Wishes(outcomes=Path("/var/lib/ductile/outcomes"), webhook=True), found.ours / "tokens.yaml"
    )
    installed, yours = (yaml.safe_load(rendered(name, values)) for name in ("agentic.yaml", "yours.yaml"))
    ingress = installed["remote_ingress"] | yours["remote_ingress"]
    return installed | yours | {"plugins": installed["plugins"] | yours["plugins"], "remote_ingress": ingress}


def guide_settings() -> Any:
    """The settings that docs/DUCTILE.md shows for the agent and its gateway, with the secrets of the tests."""
    return yaml.safe_load(_shown()[0])


def guide_pipeline() -> str:
    """The pipeline that docs/DUCTILE.md shows, as a file of Ductile's configuration."""
    return f"pipelines:\n{_shown()[3]}"


def guide_passing_on() -> str:
    """The pipeline that passes on what a person answers, as a file of Ductile's configuration."""
    return f"pipelines:\n{_shown()[4]}"


def guide_peer() -> Any:
    """The Ductile of which docs/DUCTILE.md shows how its answers are taken."""
    return yaml.safe_load(_shown()[5])["gateway"]["ingress"]["peers"]["ductile"]


def guide_relay() -> Any:
    """The section `gateway` that docs/DUCTILE.md shows for a tool that is called by events."""
    return yaml.safe_load(_shown()[6])["gateway"]


def _shown() -> list[str]:
    text = (ROOT / "docs" / "DUCTILE.md").read_text(encoding="utf-8")
    secrets = ENVIRONMENT | OF_THE_SERVICES
    filled = re.sub(r"\$\{(\w+)\}", lambda name: secrets.get(name[1], name[0]), text)
    return re.findall(r"```yaml\n(.*?)```", filled, re.DOTALL)


def _for_tests(config: Any, url: str, webhooks: str) -> None:
    config["service"]["tick_interval"] = "500ms"
    config["api"]["listen"] = url.removeprefix("http://")
    config["webhooks"] = {"listen": webhooks.removeprefix("http://")}


def _add_file_handler(folder: Path) -> None:
    if "DUCTILE_PLUGINS" in os.environ:
        shutil.copytree(Path(os.environ["DUCTILE_PLUGINS"]) / "file_handler", folder)
        return
    _add_plugin(folder, FILE_HANDLER)


def _add_plugin(folder: Path, program: str) -> None:
    folder.mkdir(mode=0o755)
    (folder / "manifest.yaml").write_text(yaml.safe_dump(FILE_HANDLER_MANIFEST | {"name": folder.name}))
    (folder / "run.py").write_text(program)
    (folder / "run.py").chmod(0o755)


def _environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
