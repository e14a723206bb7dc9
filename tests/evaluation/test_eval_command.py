"""`agentic eval` as its users run it."""

import json
from pathlib import Path

from tests.cli.calling import Called, agentic_here
from tests.evaluation.small import written
from tests.models.fake_anthropic import FakeAnthropic


def evaluate(*arguments: str | Path) -> Called:
    return agentic_here("eval", *arguments, COLUMNS="120")


def only(*names: str) -> list[str]:
    return [part for name in names for part in ("--scenario", name)]


def test_a_table_says_what_came_of_each_scenario_and_of_all() -> None:
    called = evaluate(*only("page-critique", "injection-page"))
    assert called.code == 0
    first, _, heading, *rows, footer = called.out.rstrip().splitlines()
    assert first == "model: each scenario's own script, which does not think"
    columns = ("scenario", "ended", "steps", "calls", "tokens", "USD", "cached", "tasks", "broken")
    assert heading.split() == " ".join(columns).split()
    assert [row.split()[1:5] for row in rows] == [
        ["injection-page", "done", "1", "3"],
        ["obeying", "!", "invalid_decision", "1"],
        ["page-critique", "done", "2", "4"],
    ]
    assert footer.split()[:4] == ["3", "of", "3", "passed"]


def test_what_did_not_pass_is_told_beneath_and_in_the_exit_code(tmp_path: Path) -> None:
    written(tmp_path, expect={"status": ["failed"], "never_say": ["It is on."]})
    called = evaluate("--folder", tmp_path, *only("small", "page-critique"))
    assert called.code == 1
    assert "1 of 2 passed" in called.out
    told = called.out[called.out.index("✗ small: A small one") :]
    assert "expected status failed; it is done; the last entry, 6, says: 'The lamp is on.'" in told
    assert "rule broken: never say: 'It is on.' is in agent.progress" in told
    assert "look at: its paper trail, with --scenario small --trail FOLDER" in told


def test_what_cannot_be_done_is_told_in_one_line() -> None:
    for arguments, told in (
        (only("nothing-like-it"), "no scenario is called 'nothing-like-it'; there are: "),
        (["--folder", "/nowhere"], "/nowhere is no folder"),
    ):
        called = evaluate(*arguments)
        assert (called.code, called.out, len(called.err.splitlines())) == (78, "", 1)
        assert told in called.err


def test_a_model_that_cannot_be_asked_fails_each_scenario_with_the_reason(tmp_path: Path) -> None:
    fake, file = FakeAnthropic(), tmp_path / "agentic.yaml"
    model = {"provider": "anthropic", "api_key": "sk-wrong-0123456789", "base_url": fake.base_url}
    file.write_text(json.dumps({"agent": {"model": model}}))
    called = evaluate("--config", file, *only("page-critique"))
    fake.close()
    assert called.code == 1
    assert called.out.startswith("model: none answered\n")
    assert "✗ model_auth" in called.out
    assert "it is failed; the last entry" in called.out
    assert "sk-wrong" not in called.out + called.err
