"""The whole circle with a real Ductile, the sample configuration and the settings of the guide.

Ductile wakes the agent, the agent calls two tools in Ductile, and Ductile hears how the run ended and keeps its
outcome.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.ductile.circle import Circle, running
from tests.ductile.real import real_ductile
from tests.kit.waiting import wait_until

pytestmark = real_ductile


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Circle]:
    with running(tmp_path_factory.mktemp("circle")) as made:
        yield made


def results(circle: Circle, plugin: str) -> list[Any]:
    """What has come of the jobs of a plugin, of those that succeeded."""
    done = [job for job in circle.jobs(plugin) if job["status"] == "succeeded"]
    return [circle.in_ductile("GET", f"/job/{job['job_id']}")["result"] for job in done]


def tools(circle: Circle, run_id: str) -> list[Any]:
    """What the journal of a run says of the tools that answered."""
    return [returned["result"] for returned in circle.entries(run_id, "ToolReturned")]


def reached_with_two_tools(circle: Circle, run_id: str) -> dict[str, Any]:
    """The run, of which each step was a job in Ductile, and whose outcome Ductile keeps."""
    run = circle.ended(run_id)
    assert run["state"] == "done"
    assert [(step["tool"], step["status"]) for step in run["steps"]] == [("fetch", "ok"), ("text-report", "ok")]
    for answer in tools(circle, run_id):
        said = [result["result"] for result in results(circle, answer["tool"])]
        assert answer["result"]["summary"] in said
    assert circle.kept(f"{run_id}.md") == f"# {run['goal']}\n\nThe last tool was text-report.\n"
    return run


def test_a_scheduled_goal_is_reached_with_two_tools_of_ductile_which_keeps_the_outcome(circle: Circle) -> None:
    run = reached_with_two_tools(circle, circle.started("?scheduled"))
    (job,) = circle.jobs("agentic-wake")
    assert (job["status"], run["wake_id"]) == ("succeeded", f"ductile:{job['job_id']}")


def test_a_tool_of_ductile_is_asked_again_with_what_another_one_found(circle: Circle) -> None:
    run_id = circle.wake("equip the office")
    (step,) = circle.ended(run_id)["steps"]
    assert (step["tool"], step["status"]) == ("z3-solver", "ok")
    assert "budget: cost <= 10000 became cost <= 11000 (by purchasing.md" in step["summary"]
    asked = [(answer["tool"], answer["status"], answer.get("task")) for answer in tools(circle, run_id)]
    assert asked == [("z3-solver", "continuation", None), ("knowledge", "ok", "task-1"), ("z3-solver", "ok", "again")]
    assert [len(circle.jobs(plugin)) for plugin in ("z3-solver", "knowledge")] == [2, 1]


def test_a_goal_that_ductile_relays_twice_is_one_run_and_its_outcome_is_relayed_back(circle: Circle) -> None:
    def accepted() -> list[str]:
        """The wake ids with which the gateway has answered starts."""
        answers = [result["accepted"] for result in results(circle, "core.relay")]
        return [answer["job_id"] for answer in answers if answer["event_type"] == "agentic.start"]

    glance = {"url": f"{circle.page}?glance", "glance_id": "g-1"}
    for _ in range(2):
        circle.in_ductile("POST", "/pipeline/start-glance", json={"payload": glance})
    run = reached_with_two_tools(circle, circle.started("?glance"))
    assert run["wake_id"] == "g-1"
    wait_until(lambda: accepted() == ["g-1", "g-1"], lambda: str(circle.jobs("core.relay")))
    assert circle.started("?glance") == run["run_id"], "there are two"


def test_a_run_that_gave_up_is_told_and_reopened_by_what_a_person_answers_through_ductile(circle: Circle) -> None:
    run_id = circle.wake("Nobody can reach this alone")
    assert circle.ended(run_id)["state"] == "escalated"
    assert circle.kept(f"{run_id}-escalated-1.md")
    answer = {"run_id": run_id, "answer": "The second one.", "message_id": "m-1"}
    circle.in_ductile("POST", "/pipeline/pass-on-answer", json={"payload": answer})
    assert circle.kept(f"{run_id}.md").endswith("\n\nThe last tool was echo.\n")
    assert circle.ended(run_id)["state"] == "done"


def test_what_a_run_may_not_do_by_itself_is_asked_in_ductile_and_done_once_it_is_allowed_there(circle: Circle) -> None:
    run_id = circle.wake("Say hello aloud")
    run = circle.ended(run_id)
    assert (run["state"], [(step["tool"], step["status"]) for step in run["steps"]]) == ("done", [("shout", "ok")])
    assert circle.kept(f"{run_id}-approval.md")
    said = circle.entries(run_id, "SignalReceived")
    assert [(one["signal"]["kind"], one["by"]) for one in said] == [("approve", 'bus, says "ductile"')]
