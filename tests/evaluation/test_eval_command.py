"""`agentic eval` as its users run it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import Called, agentic_here
from tests.evaluation.small import written
from tests.models.fake_anthropic import FakeAnthropic
from tests.models.model_house import FRAMING, PLAN, action, reply, wanted
from tests.models.wire import KEY


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


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--scenario", "nothing-like-it"), 78, "no scenario is called 'nothing-like-it'; there are: "),
        (("--folder", "/nowhere"), 78, "/nowhere is no folder"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(arguments: tuple[str, ...], code: int, told: str) -> None:
    called = evaluate(*arguments)
    assert (called.code, called.out, len(called.err.splitlines())) == (code, "", 1)
    assert told in called.err


DONE = {
    "summary": "It is on.",
    "met": [{"item": f"d{n}", "evidence": "step:1", "quote": "it is on"} for n in (1, 2, 3)],
    "unmet": [],
    "facts": [],
    "verdict": "done",
    "outcome": "The lamp is on.",
}
SWITCHED = {**PLAN, "actions": [action("lamp", "switch", {"state": "on"})]}
LOOK = {**PLAN, "actions": [action("lamp", "look", {})]}
ITEMS = [{"text": text, "proof": "step", "tool": "lamp"} for text in ("It was found", "It was switched", "It shines")]


def lamp(body: dict[str, Any]) -> dict[str, Any]:
    """A mind that switches the lamp on, looks at it, and is done."""
    if wanted(body) == "framing":
        return reply(framing={**FRAMING, "definition_of_done": ITEMS}, plan=SWITCHED)
    if sum(block["text"].startswith("<step ") for block in body["messages"][0]["content"]) < 2:
        return reply(reflection={**DONE, "met": [], "verdict": "continue"}, plan=LOOK)
    return reply(reflection=DONE)


@pytest.fixture
def fake() -> Iterator[FakeAnthropic]:
    fake = FakeAnthropic()
    fake.policy = lamp
    yield fake
    fake.close()


@pytest.fixture
def config(fake: FakeAnthropic, tmp_path: Path) -> Path:
    """The agent's configuration, with the fake for its model, beside a folder with a scenario."""
    (tmp_path / "mine").mkdir()
    written(tmp_path / "mine", name="lamp")
    return configured(fake, tmp_path, KEY)


def configured(fake: FakeAnthropic, folder: Path, key: str) -> Path:
    file = folder / "agentic.yaml"
    model = {"provider": "anthropic", "api_key": key, "base_url": fake.base_url}
    file.write_text(json.dumps({"agent": {"model": model}}))
    return file


def test_with_a_model_the_columns_say_what_it_spent(config: Path, tmp_path: Path) -> None:
    asked = ("--folder", tmp_path / "mine", "--scenario", "lamp", "--json")
    document: dict[str, Any] = evaluate("--config", config, *asked).document
    (row,) = document["scenarios"]
    assert row["passed"]
    assert document["models"] == ["claude-sonnet-5-5"]
    assert row["tokens"] > 4000
    assert 0 < row["cost_usd"] < 1
    assert 0.2 < row["cache_share"] < 1


def test_a_model_that_cannot_be_asked_fails_each_scenario_with_the_reason(fake: FakeAnthropic, tmp_path: Path) -> None:
    called = evaluate("--config", configured(fake, tmp_path, "sk-wrong-0123456789"), *only("page-critique"))
    assert called.code == 1
    assert called.out.startswith("model: none answered\n")
    assert "✗ model_auth" in called.out
    assert "it is failed; the last entry" in called.out
    assert "sk-wrong" not in called.out + called.err
