"""What a run waits for (a person, tools that others play, children) outlives an agent that is killed at the worst
moments."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from schemas import keys, subjects
from schemas.generate import STREAMS
from tests.kit.by_hand import READ, WRITE, Bench, bench
from tests.kit.stack import DONE, MET, action, entries, of_goal, payloads, planning, post, script, shown, until, view

pytestmark = pytest.mark.asyncio(loop_scope="module")

IN_DOUBT = {"class": "in_doubt", "message": "the answer was lost", "retryable": False}
FAILED = {"class": "upstream", "message": "not now", "retryable": True}
QUESTION = {"question": "Which sensor?", "choices": ["hall", "cellar"], "tried": "Both are doors."}
IN_THE_CELLAR = {"verdict": "continue", "summary": "it is the cellar"}
PAGES = [action("look", page=number) for number in range(3)]
HALVES = [action("agent", "run", goal=f"half {number}") for number in (1, 2)]
READ_ALL = [item | {"evidence": f"step:{number}"} for number, item in enumerate(MET, start=1)]
RULES = script(
    *of_goal("^put", planning("put"), DONE),
    *of_goal("^post", planning("post"), DONE),
    *of_goal(
        "^ask",
        {"phase": "plan", "ask": QUESTION},
        DONE | {"when": {"steps": 1}},
        {
            "phase": "reflect",
            "when": {"person": "cellar"},
            "reflect": IN_THE_CELLAR,
            "plan": {"action": action("look", where="cellar")},
        },
    ),
    *of_goal(
        "^three pages",
        {"phase": "plan", "plan": {"action": PAGES[0], "also": PAGES[1:]}},
        {"phase": "reflect", "when": {"steps": 3}, "reflect": {"verdict": "done", "summary": "done", "met": READ_ALL}},
    ),
    *of_goal("^halves", {"phase": "plan", "plan": {"action": HALVES[0], "also": HALVES[1:]}}),
    planning("look"),
    DONE,
)
"""By the goal: a write, one that is approved first, a question, three reads at once, two runs at once, or a read."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with bench(
        tmp_path_factory.mktemp("bench"),
        RULES,
        mortal=True,
        offers=(READ, WRITE, WRITE | {"name": "post", "route": "post"}),
        approve={"post": "always"},
        limits={"max_depth": 1, "parallel_reads": 3},
    ) as agent:
        yield agent


async def woken(made: Bench, goal: str) -> str:
    return str((await made.wake(goal.replace(" ", "-"), goal=goal)).json()["run_id"])


async def kept(made: Bench, subject: str, run_id: str) -> list[dict[str, Any]]:
    """What the bus holds of `subject` about a run."""
    return [told for told in await payloads(made.link, subject) if told["run_id"] == run_id]


async def asked(made: Bench, run_id: str) -> dict[str, Any]:
    """What waits for a person, once the bus is told."""
    found: list[dict[str, Any]] = []

    async def is_told() -> bool:
        found[:] = await kept(made, subjects.WAITING, run_id)
        return bool(found)

    await until(is_told)
    return found[-1]


async def say(made: Bench, run_id: str, signal_id: str, **said: Any) -> None:
    key = keys.signal(run_id, signal_id)
    message = {"type": subjects.SIGNAL, "payload": {"run_id": run_id, "signal_id": signal_id} | said, "dedupe_key": key}
    await made.publish(subjects.SIGNAL, message, msg_id=key)


async def test_a_write_waits_for_its_approval_through_crashes_and_is_asked_and_done_once(made: Bench) -> None:
    run_id = await woken(made, "post it")
    waiting = await asked(made, run_id)
    assert [waiting[name] for name in ("kind", "run_id", "step", "tool", "command", "arguments")] == [
        *("approval", run_id, 1, "post", "handle"),
        {},
    ]
    await made.crash()
    assert made.asked(run_id) == []
    await say(made, run_id, "s-1", kind="approve", step=1, arguments_hash=waiting["arguments_hash"], by="ann")
    await made.crash()
    await made.answer(await made.request(1, run_id))
    ended = await made.ended(run_id)
    assert (ended["state"], [step["step"] for step in ended["steps"]]) == ("done", [1])
    assert (len(made.asked(run_id)), len(await kept(made, subjects.WAITING, run_id))) == (1, 1)
    said = [entry["event"]["by"] for entry in await entries(made, run_id) if entry["kind"] == "SignalReceived"]
    assert said == ['bus, says "ann"']


async def test_a_question_is_asked_once_and_its_answer_is_not_lost_to_a_crash(made: Bench) -> None:
    run_id = await woken(made, "ask which")
    waiting = await asked(made, run_id)
    assert (waiting["kind"], {name: waiting[name] for name in QUESTION}) == ("question", QUESTION)
    await made.crash()
    seen = await view(made, run_id)
    assert (seen["state"], seen["waiting_for"]["kind"], seen["asks"]["question"]) == (
        *("paused", "question"),
        "Which sensor?",
    )
    answer = {"answer": "the cellar", "signal_id": "s-1"}
    assert (await post(made, f"/v1/runs/{run_id}/answers", **answer)).status_code == 202
    await made.crash()
    assert (await post(made, f"/v1/runs/{run_id}/answers", **answer)).status_code == 202, "the same again"
    request = await made.request(1, run_id)
    assert request["tool_payload"] == {"where": "cellar"}
    await made.answer(request)
    assert (await made.ended(run_id))["state"] == "done"
    assert (len(made.asked(run_id)), len(await kept(made, subjects.WAITING, run_id))) == (1, 1)


@pytest.mark.parametrize(("outcome", "step"), [("ran", "ok"), ("did_not_run", "error")])
async def test_a_write_in_doubt_is_settled_by_a_persons_word_through_a_crash(
    made: Bench, outcome: str, step: str
) -> None:
    run_id = await woken(made, f"put {outcome}")
    await made.answer(await made.request(1, run_id), status="error", error=IN_DOUBT, result=None)
    assert (await made.ended(run_id))["state"] == "escalated"
    assert (await asked(made, run_id))["kind"] == "in_doubt"
    await say(made, run_id, "s-1", kind="answer", message="I looked", outcome=outcome)
    await made.crash()
    await shown(made, run_id, lambda run: run["reopened"] == 1)
    ended = await made.ended(run_id)
    assert (ended["reopened"], ended["steps"][0]["status"]) == (1, step)
    (told,) = await kept(made, subjects.REOPENED, run_id)
    assert (told["answer_to"], told["by"], told["message"]) == ("in_doubt", "bus", "I looked")
    assert len(made.asked(run_id)) == 1


async def test_a_killed_agent_asks_for_no_read_again_and_goes_on_when_the_last_is_in(made: Bench) -> None:
    run_id = await woken(made, "three pages")
    await made.request(3, run_id)
    await made.answer(made.asked(run_id)[1])
    statuses = [(1, "pending"), (2, "ok"), (3, "pending")]
    await shown(made, run_id, lambda run: [(step["step"], step["status"]) for step in run["steps"]] == statuses)
    await made.crash()
    seen = await view(made, run_id)
    assert [(step["step"], step["status"]) for step in seen["steps"]] == statuses
    for request in (made.asked(run_id)[2], made.asked(run_id)[0]):
        await made.answer(request)
    ended = await made.ended(run_id)
    assert (ended["state"], ended["usage"]["calls"]) == ("done", 3)
    assert sorted(request["step"] for request in made.asked(run_id)) == [1, 2, 3]


async def test_a_killed_agent_starts_no_child_twice_and_brings_both_home(made: Bench) -> None:
    before = len(made.requests)
    run_id = await woken(made, "halves")

    def looks() -> list[dict[str, Any]]:
        return [request for request in made.requests[before:] if request["tool"] == "look"]

    await until(lambda: len(looks()) == 2)
    first, second = looks()
    await made.answer(first)
    await made.ended(first["run_id"])
    await made.crash()
    assert (await view(made, run_id))["waiting_for"]["kind"] == "child"
    await made.answer(second)
    ended = await made.ended(run_id)
    assert (ended["state"], ended["usage"]["calls"], ended["budget"]["steps"]) == ("done", 9, 4)
    goals = [run["goal"] for run in await made.runs()]
    assert (sorted(goal for goal in goals if goal.startswith("half ")), len(looks())) == (["half 1", "half 2"], 2)
    assert [(request["step"], request["executor"]) for request in made.asked(run_id)] == [
        (1, "agentic-loop"),
        (2, "agentic-loop"),
    ]


async def test_a_read_whose_second_answer_was_dropped_while_the_agent_was_killed_is_asked_again_at_once(
    made: Bench,
) -> None:
    """By an executor that knows RFC-103 alone: one key for the results of all attempts of a step."""
    run_id = await woken(made, "look once")
    await made.answer(await made.request(1, run_id), status="error", error=FAILED, result=None)
    second = await made.request(2, run_id)
    made.agent.kill()
    assert (await made.answer(second)).duplicate
    await made.answer(await made.request(3, run_id))
    assert (await made.ended(run_id))["state"] == "done"


async def test_what_is_accepted_begins_after_a_crash_though_the_bus_has_lost_every_message(made: Bench) -> None:
    run_ids = [await woken(made, f"look {number}") for number in range(20)]
    made.agent.kill()
    for stream in STREAMS:
        await made.client.jetstream().delete_stream(stream)
    await made.set_up()
    await until(lambda: {request["run_id"] for request in made.requests} >= set(run_ids))
