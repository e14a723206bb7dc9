"""`agentic eval` as its users run it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_service.workbench.evaluation.scenario import own_folder, scenarios
from tests.cli.calling import Called, agentic_here
from tests.evaluation.script_policy import ScriptPolicy, by_goal
from tests.evaluation.small import written
from tests.models.fake_anthropic import FakeAnthropic
from tests.models.wire import KEY

SOME = ("login-page", "long-log", "injection-*", "model-outage", "needs-reframe", "reply-cut", "tokens-too-few")


def evaluate(*arguments: str | Path) -> Called:
    return agentic_here("eval", *arguments, COLUMNS="120")


def only(*names: str) -> list[str]:
    return [part for name in names for part in ("--scenario", name)]


def test_a_table_says_what_came_of_each_scenario_and_of_all() -> None:
    called = evaluate(*only("page-critique", "injection-page"))
    assert called.code == 0
    first, _, heading, *rows, footer = called.out.rstrip().splitlines()
    assert first == "model: each scenario's own script, which does not think"
    columns = ("scenario", "ended", "steps", "calls", "tokens", "cost USD", "cached", "rules broken")
    assert heading.split() == " ".join(columns).split()
    assert [row.split()[1:5] for row in rows] == [
        ["injection-page", "done", "1", "3"],
        ["injection-page-obeying", "escalated", "invalid_decision", "1"],
        ["page-critique", "done", "2", "4"],
    ]
    assert footer.split()[:4] == ["3", "of", "3", "passed"]


def test_json_is_one_document() -> None:
    document = evaluate(*only("page-critique"), "--json").document
    assert document["ok"] is True
    assert document["models"] == ["script:page-critique"]
    (scenario,) = document["scenarios"]
    assert (scenario["name"], scenario["passed"], scenario["status"], scenario["calls"]) == (
        "page-critique",
        True,
        "done",
        4,
    )
    assert document["totals"]["scenarios"] == 1


def test_what_did_not_pass_is_told_beneath_and_in_the_exit_code(tmp_path: Path) -> None:
    written(tmp_path, expect={"status": ["failed"], "never_say": ["It is on."]})
    called = evaluate("--folder", tmp_path, *only("small", "page-critique"))
    assert called.code == 1
    assert "1 of 2 passed" in called.out
    told = called.out[called.out.index("✗ small: A small one") :]
    assert "expected status failed; it is done; the last entry, 6, says: 'The lamp is on.'" in told
    assert "rule broken: never say: 'It is on.' is in agent.progress" in told
    assert "look at: its paper trail, with --scenario small --trail FOLDER" in told


def test_a_kept_trail_is_named_where_something_did_not_pass(tmp_path: Path) -> None:
    written(tmp_path, expect={"status": ["failed"]})
    trail = tmp_path / "trail"
    called = evaluate("--folder", tmp_path, *only("small"), "--trail", trail, "--json")
    run_id = called.document["scenarios"][0]["run_id"]
    assert (trail / run_id / "decisions.md").is_file()
    assert f"look at: {trail / run_id}" in evaluate("--folder", tmp_path, *only("small"), "--trail", trail).out


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--scenario", "nothing-like-it"), 78, "no scenario is called 'nothing-like-it'; there are: cancel-in-flight"),
        (("--folder", "/nowhere"), 78, "/nowhere is no folder"),
        (("--record", "a", "--replay", "b"), 2, "give --record or --replay"),
        (("--jobs", "0"), 2, "--jobs"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(arguments: tuple[str, ...], code: int, told: str) -> None:
    called = evaluate(*arguments)
    assert (called.code, called.out, len(called.err.splitlines())) == (code, "", 1)
    assert told in called.err


@pytest.fixture
def fake() -> Iterator[FakeAnthropic]:
    fake = FakeAnthropic()
    fake.policy = ScriptPolicy(by_goal(scenarios([own_folder()])))
    yield fake
    fake.close()


@pytest.fixture
def config(fake: FakeAnthropic, tmp_path: Path) -> Path:
    """The agent's configuration, with the fake for its model."""
    model = {"provider": "anthropic", "api_key": KEY, "base_url": fake.base_url}
    file = tmp_path / "agentic.yaml"
    file.write_text(json.dumps({"agent": {"model": model}}))
    return file


def test_what_is_recorded_is_replayed_without_the_model_to_the_same_table(
    fake: FakeAnthropic, config: Path, tmp_path: Path
) -> None:
    tapes = tmp_path / "tapes"
    first = evaluate("--config", config, *only(*SOME), "--record", tapes, "--jobs", "1")
    assert first.code == 0, first.out
    assert first.out.startswith("model: claude-sonnet-5-5\n")
    fake.close()
    again = evaluate(*only(*SOME), "--replay", tapes)
    assert again.code == 0
    assert table(again) == table(first)
    assert again.out.startswith(f"model: claude-sonnet-5-5, replayed from {tapes}\n")


def test_no_cassette_holds_the_key(config: Path, tmp_path: Path) -> None:
    evaluate("--config", config, *only("page-critique"), "--record", tmp_path / "tapes")
    (tape,) = (tmp_path / "tapes").iterdir()
    assert KEY not in tape.read_text()


def test_with_a_model_the_columns_say_what_it_spent(config: Path) -> None:
    document: dict[str, Any] = evaluate("--config", config, *only("feed-summary"), "--json").document
    (row,) = document["scenarios"]
    assert row["passed"]
    assert document["models"] == ["claude-sonnet-5-5"]
    assert row["tokens"] > 5000
    assert 0 < row["cost_usd"] < 1
    assert 0.3 < row["cache_share"] < 1


def test_a_model_that_cannot_be_asked_fails_each_scenario_with_the_reason(fake: FakeAnthropic, tmp_path: Path) -> None:
    model = {"provider": "anthropic", "api_key": "sk-wrong-0123456789", "base_url": fake.base_url}
    file = tmp_path / "agentic.yaml"
    file.write_text(json.dumps({"agent": {"model": model}}))
    called = evaluate("--config", file, *only("page-critique"))
    assert called.code == 1
    assert called.out.startswith("model: none answered\n")
    assert "failed model_auth" in called.out
    assert "it is failed; the last entry" in called.out
    assert "sk-wrong" not in called.out + called.err


def table(called: Called) -> list[str]:
    return called.out.splitlines()[2:]
