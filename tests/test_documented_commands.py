"""Every command in pages and programs can be called as shown."""

import asyncio
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from agent_service.cli.main import app
from agent_service.models.scripted_model import ANSWERS, Condition, Fault, Rule
from agent_service.workbench.dev import free_port, stack
from agent_service.workbench.dev_settings import PLUGINS, DevOptions
from ductile_gateway.cli.main import app as gateway_app
from tests.cli.invoke import clean
from tests.kit import nats_cli
from tests.kit.pages import PAGES, ROOT, Block, blocks, play, written
from tests.kit.stack import DONE, FRAME, of_goal, planning, running

API, BUS, README, EVALUATION = (
    ROOT / "docs" / "API.md",
    ROOT / "docs" / "BUS.md",
    ROOT / "README.md",
    ROOT / "docs" / "EVALUATION.md",
)
TOOLS, TUTORIAL = ROOT / "docs" / "TOOLS.md", ROOT / "docs" / "TUTORIAL.md"
KILL_IT = "Kill it"
BY_OTHERS = ("by-hand", "machine")
OWN_TOOL = "A tool of your own"
WITH_A_DUCTILE = {ROOT / "docs" / "DUCTILE.md"}
"""tests/ductile tries their commands."""
BLOCKS = [block for page in PAGES if page not in WITH_A_DUCTILE for block in blocks(page)]
SHELL = [block for block in BLOCKS if block.language == "bash" and not block.is_file]
OURS = re.compile(r"(?:agentic|ductile-gateway|make) [a-z].*")
COMMANDS = {"agentic": typer.main.get_command(app), "ductile-gateway": typer.main.get_command(gateway_app)}
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def shown() -> Iterator[tuple[str, str]]:
    """Every command of ours in a page or program, with its place."""
    for block in SHELL:
        for line in re.split(r"[;\n]|&&", block.text):
            yield block.place, line.split(" #")[0].strip()
    for file in (*PAGES, ROOT / "deploy" / "agentic.yaml"):
        text = file.read_text(encoding="utf-8")
        for span in re.findall(r"`([^`\n]+)`", text) + re.findall(r"^# {5}(\S.*?)(?:  .*)?$", text, re.MULTILINE):
            yield str(file.relative_to(ROOT)), span


SHOWN = sorted({(place, line) for place, line in shown() if OURS.fullmatch(line)})


def flaw(line: str) -> str:
    """Returns the reason why the command cannot be called like this; empty if it can."""
    program, *words = shlex.split(re.split(r" [|>&]| 2>&1", line)[0])
    if program == "make":
        return "" if words[0] in TARGETS else f"no target {words[0]}"
    command = COMMANDS["ductile-gateway" if words[0] == "ductile" else program]  # handed on
    while words and isinstance(command, TyperGroup):
        name = words.pop(0)
        try:
            _, found, _ = command.resolve_command(typer.Context(command), [name])
            assert found
            command = found
        except TyperException:
            return f"no command {name}"
    if isinstance(command, TyperGroup) or "…" in words:
        return ""
    try:
        _, left, _ = command.make_parser(typer.Context(command)).parse_args(words)
    except TyperException as error:
        spoken_of = str(error).endswith("requires an argument.")
        return "" if spoken_of else str(error)
    return f"nothing takes {left}" if left else ""


def test_every_procedure_of_an_operator_is_typed_on_a_machine() -> None:
    deploy, names = ROOT / "tests" / "deploy", ("systemd_machine", "test_machine", "test_operators_story")
    tests = "".join((deploy / f"{name}.py").read_text() for name in names)
    shell = [block for block in SHELL if block.page == ROOT / "docs" / "OPERATIONS.md"]
    assert [block.place for block in shell if block.mark != "machine" or f'"{block.heading}"' not in tests] == []


def test_every_command_that_is_shown_exists_with_its_options() -> None:
    flaws = {line: flaw(line) for _, line in SHOWN}
    assert [f"{place}: {line}: {flaws[line]}" for place, line in SHOWN if flaws[line]] == []


def played(page: Path, heading: str | None = None) -> list[Block]:
    return [b for b in SHELL if b.page == page and heading in (None, b.heading) and b.mark not in BY_OTHERS]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout without generated files, as a reader of the README has it."""
    cwd = tmp_path / "checkout"
    cwd.mkdir()
    (cwd / "deploy").symlink_to(ROOT / "deploy")
    (cwd / ".venv").symlink_to(sys.prefix)
    return cwd


def a_shell(folder: Path, nats_url: str = "", **more: str) -> dict[str, str]:
    found = clean(nats_cli.environment(folder, nats_url, **more))
    return found | {"PATH": f"{Path(sys.executable).parent}:{found['PATH']}"}


def the_script(cwd: Path) -> Path:
    (example,) = (block.text for block in blocks(EVALUATION) if block.language == "yaml" and not block.mark)
    (cwd / "ask.yaml").write_text(example)
    return cwd / "ask.yaml"


@pytest.mark.natscli
@nats_cli.needs_nats_cli
@pytest.mark.skipif(not shutil.which("jq"), reason="no jq: it takes the answers of the bus apart")
async def test_the_page_on_the_bus_holds_line_by_line(checkout: Path) -> None:
    async with stack(DevOptions(folder=checkout / ".agentic", script=the_script(checkout), sync_interval="1s")) as made:
        environ = a_shell(checkout, made.nats.url, AGENTIC_URL=made.url)
        said = await asyncio.to_thread(play, played(BUS), checkout, environ)
    for fact in ("Soup.", '"too late"', '"executor":"by-hand"', '"executor":"count-executor"', "agent.completed"):
        assert fact in said
    for fact in ('"task": "again"', '"summary": "the cook says pancakes"', "Pancakes."):
        assert fact in said
    assert '"repeat_as":"agentic:start:order-18#2"' in said
    assert '"text": "the page is up"' in said, "what was approved was asked for"
    assert "took no notice" in said, "what nothing waited for any more was refused"


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl: your package manager has it")
async def test_the_page_on_the_api_holds_call_by_call(checkout: Path) -> None:
    waits, echo = of_goal("^wait", FRAME | {"wait_s": 60}), planning("echo", message="$goal")
    rules = {"name": "waiting", "rules": [*waits, FRAME, echo, DONE]}
    async with running(checkout / ".agentic", rules, plugins=(PLUGINS,)) as made:
        said = await asyncio.to_thread(play, played(API), checkout, a_shell(checkout, AGENTIC_URL=made.url))
    for fact in (
        '"status":"done"',
        '"path":"plan.md"',
        "# Plan",
        "id: 4\nevent: ",
        '"next_after":5',
        '"next_cursor":null',
    ):
        assert fact in said
    for fact in ('"signal_id":', '"status":"cancelled"', '"field":"constraints.max_step"', '"code":"invalid"'):
        assert fact in said


IN_THE_STORY = {
    "agentic_run": "! agentic run",  # it ends with 3 when it asks
    "kill -9 PID": r"kill -9 $(sed -n 's/.*kill -9 \([0-9]*\) .*/\1/p' follow-0.out)",
    "agentic_approve last": "for _ in $(seq 60); do agentic approve last && break; sleep 1; done",
}


def test_the_story_of_the_readme_holds_over_a_kill_and_so_does_what_dev_shows(checkout: Path) -> None:
    port = free_port()
    environ = a_shell(checkout, AGENTIC_URL=f"http://127.0.0.1:{port}")
    instead = {"agentic_dev": f"agentic dev --http-port {port}", **IN_THE_STORY}
    said = play(played(README, KILL_IT), checkout, environ, **instead)
    for shown in (
        "Which one counts?",
        "# Two pages compared",
        '"to": "the team"',
        f"run --url http://127.0.0.1:{port}",
    ):
        assert shown in said
    assert """  nats --server "$(cat .agentic/nats-url)" sub 'agentic.>' 'agent.>'""" in said.splitlines()


def test_a_first_tool_is_made_tried_and_used_by_a_run_as_the_page_says(checkout: Path) -> None:
    port = free_port()
    written(TOOLS, checkout)
    environ = a_shell(checkout, AGENTIC_URL=f"http://127.0.0.1:{port}")
    said = play(played(TOOLS), checkout, environ, agentic_dev=f"agentic dev --http-port {port}")
    assert "tool words: plugin words, handle (read)" in said
    assert "advice: " not in said
    assert re.search(r"✓ step 1 .*words ok: 6 words, the longest is words", said)
    assert re.search(r"^\d+% /", said, re.MULTILINE), "the disks"
    assert "2 words" in said


def test_the_nightly_job_of_the_tutorial_mails_its_report_once_a_person_has_approved(checkout: Path) -> None:
    port = free_port()
    written(TUTORIAL, checkout)
    environ = a_shell(checkout, AGENTIC_URL=f"http://127.0.0.1:{port}")
    instead = {"agentic_dev": f"agentic dev --http-port {port}", "agentic_run": "! agentic run"}
    said = play(played(TUTORIAL), checkout, environ, **instead)
    assert (checkout / "outbox" / "mails.txt").read_text().startswith("To: ann\n2026-11-28 02:14 ERROR backup")
    assert "approve step 2: house mail" in said


def test_a_tool_of_ones_own_is_made_and_called_as_the_readme_says(checkout: Path) -> None:
    assert "3 words, the longest is three" in play(played(README, OWN_TOOL), checkout, a_shell(checkout))


def test_a_scenario_and_a_script_of_ones_own_are_played_as_the_page_says(checkout: Path) -> None:
    the_script(checkout)
    written(EVALUATION, checkout)
    said = play(played(EVALUATION), checkout, a_shell(checkout))
    assert re.search(r"✓ lamp +done +2 +4 ", said)
    assert "✓ ask.yaml: ask, 6 rules" in said


def test_the_reference_of_scripts_has_every_field() -> None:
    page = EVALUATION.read_text()
    fields = {*Rule.model_fields, *Condition.model_fields, *Fault.model_fields, *ANSWERS}
    assert [field for field in sorted(fields) if f"`{field}`" not in page] == []
