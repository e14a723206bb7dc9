"""Every example does what its page says, line by line, as a copy in its own folder."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from agent_service.workbench.dev import free_port
from tests.cli.invoke import agentic, clean
from tests.kit import nats_cli
from tests.kit.http_server import WireServer
from tests.kit.pages import ROOT, blocks, play
from tests.plugins.asking import a_request, run

EXAMPLES = ROOT / "examples"
SAYS = {
    "constraints": [r"z3-solver ok: sat: all 4 constraints", r"cost <= 10000 became cost <= 11000 \(by purchasing\.md"],
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
        r'^202 .*"status": ?"accepted"',
        r'\{"number": 42, "label": "bug"\}\n\{"number": 42, "text": "Thank you',
    ],
}
"""Text that their output must contain."""


def surroundings(folder: Path) -> dict[str, str]:
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


def test_the_tracker_asks_and_tells_github_once_it_is_told_of_a_repository() -> None:
    open_issues = json.dumps([{"number": 7, "title": "Crash with umlaut", "state": "open"}]).encode()
    tracker = EXAMPLES / "webhook-triage" / "tools" / "tracker"
    with WireServer(lambda heard: (200, {}, open_issues if heard.method == "GET" else b"{}")) as github:
        config = {"folder": ".", "repository": "a/b", "token": "of-github", "api": github.url}
        found = run(tracker, a_request({"title": "Crash at once"}, command="similar", config=config))
        run(tracker, a_request({"number": "42", "label": "bug"}, command="label", config=config))
        run(tracker, a_request({"number": "42", "text": "Thank you."}, command="reply", config=config))
    assert "#7 (open) Crash with umlaut" in found["result"]
    assert {heard.headers["authorization"] for heard in github.calls} == {"Bearer of-github"}
    assert [(heard.path, json.loads(heard.raw)) for heard in github.calls if heard.method == "POST"] == [
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
    elsewhere = agentic("example", "research-note", "--dir", "a folder/b", cwd=tmp_path)
    assert ("cd 'a folder/b/research-note' && " in elsewhere.out, len([*(tmp_path / "a folder" / "b").iterdir()])) == (
        True,
        1,
    )
    again = agentic("example", "research-note", cwd=tmp_path)
    assert (again.code, "name another folder with --dir" in again.err) == (78, True)
