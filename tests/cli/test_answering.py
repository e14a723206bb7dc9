"""The commands of a person whom a run asks, against everything that `agentic dev` starts."""

import pytest

from tests.cli.calling import agentic_here
from tests.cli.dev_stack import Dev
from tests.kit.waiting import wait_until


def asking(dev: Dev) -> str:
    """A run that waits for an approval."""
    called = dev("run", "--json", "critique")
    assert (called.code, called.document["state"], called.document["asks"]["tool"]) == (3, "paused", "knowledge")
    return str(called.document["run_id"])


def ended(dev: Dev, run_id: str) -> None:
    wait_until(lambda: dev("show", "--json", run_id).document["state"] == "escalated")


def test_what_a_run_asks_is_shown_in_full_wherever_it_is_looked_at(dev: Dev) -> None:
    run_id = asking(dev)
    about = dev("show", "--json", run_id).document["asks"]["arguments_hash"]
    for told in (dev("show", run_id).out, dev("inbox").out, dev("reject", run_id).out):
        for part in ("step 1: knowledge search", '"query": "prices ␛no"', about):
            assert part in told
    ended(dev, run_id)


def test_what_is_approved_is_carried_out(dev: Dev) -> None:
    run_id = asking(dev)
    heard = dev("approve", "--json", run_id).document
    assert (heard["run_id"], heard["status"]) == (run_id, "running")
    ended(dev, run_id)
    view = dev("show", "--json", run_id).document
    assert [(step["tool"], step["status"]) for step in view["steps"]] == [("knowledge", "ok")]
    assert "approved, by os user " in dev("show", run_id).out
    assert dev("approve", run_id).code == 6


def test_a_question_is_shown_with_its_choices_and_an_answer_goes_on(dev: Dev) -> None:
    called = dev("run", "--json", "which")
    run_id = called.document["run_id"]
    assert (called.code, called.document["waiting_for"]["kind"]) == (3, "question")
    assert f"agentic answer {run_id} 'TEXT'" in dev("why", run_id).out
    for told in (dev("show", run_id).out, dev("inbox").out):
        for part in ("Which of them ␛[2J?", "- hall", "- cellar", "where it looks", f"agentic answer {run_id} 'TEXT'"):
            assert part in told
    assert dev("approve", run_id).code == 6
    assert dev("answer", run_id, "the cellar").code == 0
    wait_until(lambda: dev("show", "--json", run_id).document["state"] == "done")
    assert "the cellar" in dev("cat", run_id, "decisions.md").out


def test_an_answer_sets_an_escalated_run_going_again(dev: Dev) -> None:
    run_id = dev.run("escalate")["run_id"]
    assert f"agentic answer {run_id} 'TEXT'" in dev("inbox").out
    told = dev("answer", "--max-steps", "15", run_id, "look once more")
    assert (told.code, f"{run_id} has the answer; it is running" in told.out) == (0, True), told
    ended(dev, run_id)
    view = dev("show", "--json", run_id).document
    assert (view["reopened"], view["budget"]["max_steps"]) == (1, 15)
    for follow in ("tail", "entries"):
        statuses = [entry["status"] for entry in dev(follow, "--json", run_id).documents]
        assert (statuses.count("escalated"), statuses[-1]) == (2, "escalated"), follow
    assert dev("show", "--watch", run_id).code == 3
    assert dev("answer", dev.run("say it back")["run_id"], "more!").code == 6


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("answer", "last"), "say what it is told"),
        (("answer", "--ran", "--look", "last"), "say one of"),
        (("approve", "--step", "0", "last"), "--step"),
    ],
)
def test_a_command_line_that_says_nothing_or_too_much_is_wrong(arguments: tuple[str, ...], told: str) -> None:
    called = agentic_here(*arguments)
    assert (called.code, told in called.err) == (2, True), called.err
