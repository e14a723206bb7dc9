"""Every example does what its page says, line by line, as a copy in a folder of its own."""

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent_service.workbench.dev import free_port
from tests.cli.calling import agentic, clean
from tests.kit import nats_cli
from tests.kit.pages import ROOT, blocks, play

EXAMPLES = ROOT / "examples"
SAYS = {
    "home-automation": [
        r"home ok: light turn_off: light\.hall, light\.kitchen",
        r"lock\.front_door: locked\s(.|\n)*approve(.|\n)*lock\.front_door: unlocked",
    ],
    "nightly-report": [
        r"^# The night to \d{4}-\d\d-\d\d\n\nIn the logs: 4 INFO, 2 ERROR, 1 WARNING\.$",
        r"(run_\w{26})\n(.|\n)*^\1$",
    ],
    "repository-chore": [r"✓ step 7 .*tidy ok: 4 files were looked at", "Nothing is left to do"],
    "research-note": [r"^# quiet heat pumps$", r"Nordwind 8 \| 32", r"Filed as quiet-heat-pumps\.md"],
    "webhook-triage": [
        r'^202 .*"duplicate": ?false',
        r'"duplicate": ?true',
        r'\{"number": 42, "label": "bug"\}\n\{"number": 42, "text": "Thank you',
    ],
}
"""What is to be found in what they print."""


def surroundings(folder: Path) -> dict[str, str]:
    """With ports of one's own."""
    hook, house = free_port(), free_port()
    ports = {
        "GATEWAY_INGRESS__PORT": str(hook),
        "WEBHOOK_URL": f"http://127.0.0.1:{hook}/webhooks/issues",
        "HOUSE_URL": f"http://127.0.0.1:{house}",
    }
    found = clean(nats_cli.environment(folder, "", **ports))
    return found | {"PATH": f"{Path(sys.executable).parent}:{found['PATH']}"}


def test_every_example_is_tried_and_listed() -> None:
    there = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    listed = set(re.findall(r"^\| \[([\w-]+)\]\(\1/README\.md\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    assert there == listed == set(SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_does_what_its_page_says(tmp_path: Path, name: str) -> None:
    folder, port = tmp_path / name, free_port()
    shutil.copytree(EXAMPLES / name, folder)
    environ = surroundings(folder) | {"AGENTIC_URL": f"http://127.0.0.1:{port}"}
    commands = [block for block in blocks(EXAMPLES / name / "README.md") if block.language == "bash"]
    said = play(commands, folder, environ, agentic_dev=f"agentic dev --http-port {port}")
    for found in SAYS[name]:
        assert re.search(found, said, re.MULTILINE), said


class Github(BaseHTTPRequestHandler):
    """As much of it as the example uses; what it was told is in `told`."""

    told: ClassVar[list[tuple[str, Any]]] = []

    def do_GET(self) -> None:
        self._answer([{"number": 7, "title": "Crash with umlaut", "state": "open"}])

    def do_POST(self) -> None:
        self.told.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self._answer({})

    def _answer(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200 if self.headers["Authorization"] == "Bearer of-github" else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def github() -> Iterator[str]:
    Github.told.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Github) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_tracker_asks_and_tells_github_once_it_is_told_of_a_repository(tmp_path: Path, github: str) -> None:
    tracker = {"folder": ".", "repository": "a/b", "token": "of-github", "api": github}
    tools = str(EXAMPLES / "webhook-triage" / "tools")
    settings = {"gateway": {"plugins": {"folders": [tools], "config": {"tracker": tracker}}}}
    (tmp_path / "agentic.yaml").write_text(json.dumps(settings))

    def called(command: str, **arguments: str) -> str:
        asked = (sys.executable, "-m", "ductile_gateway", "call", "tracker", command, json.dumps(arguments))
        return subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout

    assert "#7 (open) Crash with umlaut" in called("similar", title="Crash at once")
    called("label", number="42", label="bug")
    called("reply", number="42", text="Thank you.")
    assert Github.told == [
        ("/repos/a/b/issues/42/labels", {"labels": ["bug"]}),
        ("/repos/a/b/issues/42/comments", {"body": "Thank you."}),
    ]


def test_an_example_can_be_copied_once_and_is_as_it_comes_along(tmp_path: Path) -> None:
    listed = agentic("example", cwd=tmp_path)
    assert [line.split()[0] for line in listed.out.splitlines()] == sorted(SAYS)
    assert "cd research-note && agentic dev" in agentic("example", "research-note", cwd=tmp_path).out
    copied = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    there = {str(path.relative_to(EXAMPLES)) for path in (EXAMPLES / "research-note").rglob("*") if path.is_file()}
    assert copied == {path for path in there if "__pycache__" not in path and ".agentic" not in path}
    again = agentic("example", "research-note", cwd=tmp_path)
    assert (again.code, "is there already" in again.err) == (78, True)
