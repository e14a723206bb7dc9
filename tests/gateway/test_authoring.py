"""From nothing to a tool that works: made, checked, called by hand, and told what is wrong with it."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ductile_gateway.authoring.making import EXAMPLE
from tests.kit.waiting import wait_until

NODE = pytest.param("node", marks=pytest.mark.skipif(not shutil.which("node"), reason="no node: install Node.js"))


def gateway(cwd: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ductile_gateway", *arguments]
    return subprocess.run(command, cwd=cwd, input=given, capture_output=True, text=True, timeout=60, check=False)


def made(cwd: Path, *, lang: str = "python", name: str = "words") -> Path:
    cwd.mkdir(exist_ok=True)
    assert gateway(cwd, "new", name, "--lang", lang).returncode == 0
    return cwd / "tools" / name


def changed(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


@pytest.mark.parametrize("lang", ["python", "bash", NODE])
def test_what_is_made_passes_the_check_and_answers_a_call(tmp_path: Path, lang: str) -> None:
    made(tmp_path, lang=lang)
    checked = gateway(tmp_path, "check")
    assert checked.returncode == 0, checked
    assert "tool words: plugin words, handle (read)" in checked.stdout
    assert "advice" not in checked.stdout
    assert "strangers" not in checked.stdout
    called = json.loads(gateway(tmp_path, "call", "words", "handle", EXAMPLE, "--json").stdout)
    assert called["status"] == "ok"
    said = {"summary": "3 words, the longest is three", "output": {"words": 3, "longest": "three"}}
    assert called["result"] == said
    refused = gateway(tmp_path, "call", "words", "handle", '{"text": "  "}')
    assert (refused.returncode, "the text has no words" in refused.stdout) == (1, True)


def test_the_check_fails_on_what_is_left_out_until_its_mends_were_made(tmp_path: Path) -> None:
    words = made(tmp_path, lang="bash")
    manifest, program = words / "manifest.yaml", words / "run.sh"
    changed(manifest, "protocol: 2\n", "")
    failed = gateway(tmp_path, "check")
    assert (failed.returncode, "add `protocol: 2`" in failed.stdout) == (78, True), failed
    changed(manifest, "manifest_version: 1\n", "manifest_version: 1\nprotocol: 2\n")
    program.chmod(0o644)
    failed = gateway(tmp_path, "check")
    mend = f"chmod 755 {program}"
    assert (failed.returncode, mend in failed.stdout) == (78, True), failed
    subprocess.run(mend.split(), check=True)
    assert gateway(tmp_path, "check").returncode == 0


def test_the_check_advises_what_a_model_would_miss_and_does_not_fail_for_it(tmp_path: Path) -> None:
    words = made(tmp_path)
    changed(words / "manifest.yaml", "    input_schema:", "    input_shema:")
    changed(words / "manifest.yaml", "continues: false", "continue: false")
    (tmp_path / "tools" / "notes").mkdir()
    checked = gateway(tmp_path, "check")
    assert checked.returncode == 0
    assert "command handle has no `input_schema`" in checked.stdout
    assert "the key `input_shema` means nothing: did you mean `input_schema`?" in checked.stdout
    assert "did you mean `continues`?" in checked.stdout
    assert "tools/notes: no manifest.yaml is in it" in checked.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("wrds", "handle", EXAMPLE), "there is no tool wrds: there is words"),
        (("words", "count", EXAMPLE), "it has handle"),
        (("words", "handle", "{}"), '"text" is a required property'),
        (("words", "handle", "{text: x}"), "is not JSON (line 1, column 2)"),
        (("words", "handle", '{"text": NaN}'), "NaN"),
        (("words", "handle", '{"text": "\\ud800"}'), "half of a surrogate pair"),
        (("words", "handle", '{"text": "\udcff"}'), "is not UTF-8"),
        (("words", "handle", '{"text": "\\u0000"}'), "NUL"),
        (("words", "handle", "[" * 3000), "levels deep"),
        (("words", "handle", '{"text": "a", "text": "b"}'), "the same key twice"),
        (("words", "handle", "[]"), "are no JSON object"),
        (("words", "handle", '{"text": "a", "run_id": "b"}'), "run_id"),
    ],
)
def test_a_call_that_cannot_be_made_says_why(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    made(tmp_path)
    refused = gateway(tmp_path, "call", *arguments)
    assert (refused.returncode, why in refused.stderr) == (2, True), refused


def test_a_tool_that_asks_for_more_though_it_says_it_never_does_fails_as_in_a_run(tmp_path: Path) -> None:
    asked = {"action": "retrieve", "query": "x", "reason": "y"}
    answer = json.dumps({"status": "continuation", "result": "It depends.", "continuation": asked})
    words = made(tmp_path, lang="bash")
    (words / "run.sh").write_text(f"#!/usr/bin/env bash\ncat >/dev/null\necho '{answer}'\n")
    called = gateway(tmp_path, "call", "words", "handle", EXAMPLE)
    assert (called.returncode, "✗ bad_continuation" in called.stdout) == (1, True), called
    changed(words / "manifest.yaml", "continues: false", "continues: true")
    assert gateway(tmp_path, "call", "words", "handle", EXAMPLE).returncode == 0


def test_an_artifact_is_read_from_a_file_and_what_is_brought_is_kept_where_it_is_wanted(tmp_path: Path) -> None:
    plugins = Path(__file__).parents[2] / "deploy" / "ductile" / "plugins"
    (tmp_path / "page.txt").write_text("One sentence. Another one.\n")
    arguments = ("call", "text-report", "handle", '{"artifact": "page.txt"}', "--tools", str(plugins / "text-report"))
    called = gateway(tmp_path, *arguments, "--artifacts", "brought")
    assert called.returncode == 0, called
    assert "artifact: critique.md (text/markdown, " in called.stdout
    assert (tmp_path / "brought" / "critique.md").read_text()
    missing = gateway(tmp_path, "call", "text-report", "handle", '{"artifact": "none.txt"}', *arguments[4:])
    assert (missing.returncode, "none.txt cannot be read" in missing.stderr) == (2, True)


def test_a_call_that_is_left_ends_its_program(tmp_path: Path) -> None:
    words = made(tmp_path, lang="bash")
    (tmp_path / "out").mkdir()
    mark = tmp_path / "out" / "running"
    (words / "run.sh").write_text(f"#!/usr/bin/env bash\necho $$ > {mark}\nexec sleep 1000\n")
    settings = {"gateway": {"plugins": {"folders": ["tools"], "write": ["out"]}}}
    (tmp_path / "agentic.yaml").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "ductile_gateway", "call", "words", "handle", EXAMPLE]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: mark.exists() and mark.read_text().strip())
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert not Path("/proc", mark.read_text().strip()).exists() or sys.platform != "linux"
