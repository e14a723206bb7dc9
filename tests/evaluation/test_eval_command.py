"""The command `agentic eval`."""

import json
from pathlib import Path

from tests.cli.invoke import agentic_here
from tests.evaluation.small_scenario import written
from tests.models.fake_anthropic import FakeAnthropic


def test_what_did_not_pass_is_told_beneath_and_in_the_exit_code(tmp_path: Path) -> None:
    written(tmp_path, expect={"status": ["failed"], "never_say": ["It is on."]})
    called = agentic_here("eval", "--folder", tmp_path, "--scenario", "small", "--scenario", "page-critique")
    assert called.code == 1
    assert "1 of 2 passed" in called.out
    told = called.out.partition("✗ small: A small one")[2]
    assert "expected status failed; it is done; the last entry, 6, says: 'The lamp is on.'" in told
    assert "never say: 'It is on.' is in agent.progress" in told


def test_a_trail_that_cannot_be_made_is_told_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    called = agentic_here("eval", "--scenario", "page-critique", "--trail", tmp_path / "file")
    assert (called.code, called.err) == (78, f"agentic: --trail {tmp_path}/file cannot be made: File exists\n")


def test_a_model_that_cannot_be_asked_fails_each_scenario_with_the_reason(tmp_path: Path) -> None:
    fake, file = FakeAnthropic(), tmp_path / "agentic.yaml"
    model = {"provider": "anthropic", "api_key": "sk-wrong-0123456789", "base_url": fake.base_url}
    file.write_text(json.dumps({"agent": {"model": model}}))
    called = agentic_here("eval", "--config", file, "--scenario", "page-critique")
    fake.close()
    assert called.code == 1
    assert called.out.startswith("model: none answered\n")
    assert called.err.startswith("agentic: 1 run to play, which may take some 0.0 million tokens")
    assert "✗ model_auth" in called.out
    assert "it is failed; the last entry" in called.out
    assert "sk-wrong" not in called.out + called.err


def test_what_is_played_again_is_compared_with_what_an_earlier_call_printed(tmp_path: Path) -> None:
    these = ("--folder", tmp_path, "--scenario", "small", "--scenario", "page-critique")
    written(tmp_path, expect={"status": ["failed"]})
    before = tmp_path / "before.json"
    before.write_text(agentic_here("eval", *these, "--repeat", "2", "--json").out)
    written(tmp_path)
    called = agentic_here("eval", *these, "--against", before, COLUMNS="200")
    assert called.code == 0
    assert called.out.splitlines()[:2] == [
        "scripts (before): each scenario's own script, which does not think",
        "scripts: each scenario's own script, which does not think",
    ]
    differing, groups = called.out.split("\n\n")[1:]
    assert [line.split() for line in differing.splitlines()[1:]] == [["small", "0", "of", "2", "1", "of", "1"]]
    first, second = [line.split() for line in groups.splitlines()[-2:]]
    assert first[:8] == ["all", "scripts", "(before)", "2", "of", "4", "50%", "15%-85%"]
    assert second[:6] == ["all", "scripts", "2", "of", "2", "100%"]
    assert " ".join(second[-4:]) == "+50% (-24% to +85%)"


def test_several_configurations_are_played_side_by_side_and_what_failed_is_told_of_each(tmp_path: Path) -> None:
    (shelf := tmp_path / "shelf").mkdir()
    written(shelf, expect={"status": ["failed"]})
    for name in ("one", "other"):
        (tmp_path / f"{name}.yaml").write_text("agent: {model: {provider: scripted}}")
    files = ("--config", tmp_path / "one.yaml", "--config", tmp_path / "other.yaml")
    called = agentic_here("eval", *files, "--folder", shelf, "--scenario", "small", "--repeat", "2")
    assert called.code == 1
    rows = [line.split()[:5] for line in called.out.splitlines() if line.startswith("work")]
    assert rows == [["work", "one", "0", "of", "2"], ["work", "other", "0", "of", "2"]]
    assert called.out.count("✗ one: small (2 of 2 runs): A small one") == 1
    assert called.out.count("✗ other: small (2 of 2 runs): A small one") == 1


def test_what_is_no_evaluation_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]")
    called = agentic_here("eval", "--against", tmp_path / "other.json")
    assert (called.code, called.out) == (78, "")
    assert "other.json is not an output of `agentic eval --json`: the whole: must be an object" in called.err


def test_every_scenario_passes_and_is_told_in_one_line_of_80_columns() -> None:
    called = agentic_here("eval", COLUMNS="80")
    assert called.code == 0, called.out
    scenarios, groups = called.out.rstrip().split("\n\n")[1:]
    heading, *rows, footer = scenarios.splitlines()
    assert heading.split() == ["scenario", "ended", "steps", "calls", "tokens", "USD", "cached"]
    assert all(row[0] == "✓" and len(row) <= 80 for row in rows)
    assert [line.split()[0] for line in groups.splitlines()[1:]] == ["recovery", "work", "people", "injections", "all"]
    assert footer.split()[:4] == [str(len(rows)), "of", str(len(rows)), "passed"]
