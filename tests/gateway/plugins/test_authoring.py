"""Making a tool: created, checked, called by hand, given error messages, and offered while the gateway runs."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

from ductile_gateway.calls.policy import Offers
from ductile_gateway.cli.main import EXAMPLE
from ductile_gateway.cli.tools import make
from ductile_gateway.plugins.folders import discover_plugins
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.toolbox import follow_folders
from tests.gateway.served import ROOT, gateway
from tests.kit.waiting import until

NODE = pytest.param("node", marks=pytest.mark.skipif(not shutil.which("node"), reason="no node: install Node.js"))


def words(cwd: Path, lang: str = "bash") -> Path:
    assert gateway(cwd, "new", "words", "--lang", lang).returncode == 0
    return cwd / "tools" / "words"


def changed(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


@pytest.mark.parametrize("lang", ["python", "bash", NODE])
def test_what_is_made_passes_the_check_and_answers_a_call(tmp_path: Path, lang: str) -> None:
    words(tmp_path, lang)
    checked = gateway(tmp_path, "check")
    assert checked.returncode == 0, checked
    assert "tool words: plugin words, handle (read)" in checked.stdout
    assert not [word for word in ("advice", "strangers") if word in checked.stdout]
    answer = json.loads(gateway(tmp_path, "call", "words", "handle", EXAMPLE, "--json").stdout)
    said = {"summary": "3 words, the longest is three", "output": {"words": 3, "longest": "three"}}
    assert (answer["status"], answer["result"]) == ("ok", said)
    refused = gateway(tmp_path, "call", "words", "handle", '{"text": "  "}')
    assert (refused.returncode, "the text has no words" in refused.stdout) == (1, True)
    changed(tmp_path / "tools" / "words" / "manifest.yaml", "protocol: 2\n", "")
    failed = gateway(tmp_path, "check")
    assert (failed.returncode, "protocol: is missing" in failed.stdout) == (78, True), failed


def test_what_a_command_prints_is_no_part_of_its_answer(tmp_path: Path) -> None:
    prints = 'print("one")\n    __import__("os").system("echo two")\n    return None\n    words ='
    changed(words(tmp_path, "python") / "run.py", "words =", prints)
    answer = json.loads(gateway(tmp_path, "call", "words", "handle", EXAMPLE, "--json").stdout)
    assert (answer["status"], sorted(answer["stderr"].split())) == ("ok", ["one", "two"]), answer


def test_a_name_that_yaml_reads_as_another_kind_stays_a_name_and_a_folder_that_cannot_be_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("123", "null", "on", "2024-01-01"):
        make(name, "bash", tmp_path / "tools")
    assert sorted(discover_plugins([tmp_path / "tools"], {}).plugins) == ["123", "2024-01-01", "null", "on"]
    (tmp_path / "file").touch()
    there = "cannot be made: File exists"
    for folder, why in (("file", there), ("tools", there), ("b\udcff", "another folder"), ("a\nb", "another folder")):
        with pytest.raises(typer.BadParameter, match=why):
            make("on", "bash", tmp_path / folder)
    monkeypatch.setattr(Path, "chmod", lambda *_: Path("/nosuch").stat())
    with pytest.raises(typer.BadParameter, match="cannot be made"):
        make("half", "bash", tmp_path / "tools")
    assert not (tmp_path / "tools" / "half").exists()


def test_each_copy_of_the_helper_is_the_one_that_new_brings() -> None:
    brought = (ROOT / "ductile_gateway" / "cli" / "templates" / "python" / "agentic_tool.py").read_text()
    copies = [*ROOT.glob("examples/*/tools/*/agentic_tool.py"), *ROOT.glob("deploy/ductile/plugins/*/agentic_tool.py")]
    assert [str(copy) for copy in copies if copy.read_text() != brought] == []


def test_a_call_that_cannot_be_made_says_why_and_an_answer_steers_no_terminal(tmp_path: Path) -> None:
    words(tmp_path)
    for arguments, why in (
        (("wrds", "handle", EXAMPLE), "there is no tool wrds: there is words"),
        (("words", "handle", "{}"), '"text" is a required property'),
        (("words", "handle", '{"text": "a", "text": "b"}'), "the same key twice"),
        (("words", "handle", '{"text": "a", "run_id": "b"}'), "run_id"),
    ):
        refused = gateway(tmp_path, "call", *arguments)
        assert (refused.returncode, why in refused.stderr) == (2, True), refused
    shown = gateway(tmp_path, "call", "words", "handle", r'{"text": "\u001b]0;owned\u0007\u202e"}').stdout
    assert ("owned" in shown, set(shown) & set("\x1b\x07\u202e")) == (True, set())


def test_a_call_shows_which_wishes_are_refused_and_keeps_all_artifacts(tmp_path: Path) -> None:
    program = words(tmp_path) / "run.sh"

    def answered(**answer: Any) -> str:
        program.write_text(f"#!/bin/sh\necho '{json.dumps({'status': 'ok', 'result': 'x'} | answer)}'")
        return gateway(tmp_path, "call", "words", "handle", EXAMPLE, "--artifacts", "kept").stdout

    assert "query is missing" in answered(continuation={"action": "retrieve"})
    assert "it never asks for more" in answered(continuation={"action": "retrieve", "query": "q"})
    answered(result="x" * 20_000, artifacts=[{"name": "output.txt", "content_type": "text/plain", "text": "its own"}])
    kept = {path.name: len(path.read_text()) for path in (tmp_path / "kept").iterdir()}
    assert kept == {"output.txt": 7, "2-output.txt": 20_000}


async def test_a_tool_that_is_new_changed_or_gone_while_the_gateway_runs_is_so_on_offer(
    tmp_path: Path,
) -> None:
    def names() -> list[str]:
        return [offer.name for offer in offers.catalog.tools]

    one, offers = make("one", "python", tmp_path), Offers()
    settings = GatewaySettings.model_validate({"plugins": {"folders": [str(tmp_path)]}})
    following = asyncio.create_task(follow_folders(settings, offers, dict[str, object]().update))
    await until(lambda: offers.catalog.revision)
    make("two", "bash", tmp_path)
    await until(lambda: names() == ["one", "two"])
    changed(one / "manifest.yaml", "type: read", "type: write")
    await until(lambda: offers.catalog.tools[0].commands[0].tier == "write")
    one.rename(tmp_path.parent / "elsewhere")
    await until(lambda: names() == ["two"])
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
