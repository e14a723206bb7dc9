"""Approving, rejecting and answering over HTTP: what a run waits for, and nothing else."""

import asyncio
from typing import Any

import httpx2
import pytest

from agent_service.core.events import SignalReceived
from agent_service.core.waiting import ForApproval
from tests.http.house import House
from tests.http.waiting_runs import with_a_letter, with_a_question
from tests.kit.runs import whole_run

OTHER = "0" * 32


def refusal(answer: httpx2.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error.get("field")


async def hash_of(house: House, run: str) -> str:
    waiting = (await house.state(run)).waiting
    assert isinstance(waiting, ForApproval)
    return waiting.subject_hash


async def test_what_is_approved_is_carried_out_and_the_journal_says_by_whom(
    client: httpx2.AsyncClient, house: House
) -> None:
    run = await house.play(with_a_letter())
    body = {"decision": "approve", "arguments_hash": await hash_of(house, run), "step": 1, "signal_id": "s-1"}
    answers = await asyncio.gather(*(client.post(f"/v1/runs/{run}/approvals", json=body) for _ in range(5)))
    assert {(answer.status_code, answer.json()["signal_id"]) for answer in answers} == {(202, "s-1")}
    state = await house.state(run)
    assert (state.status, [pending.action.tool for pending in state.pendings]) == ("running", ["mail"])
    assert [ruling.by for ruling in state.rulings] == ["token admin"]
    event = (await house.store.entries(run))[-1].decoded()
    assert isinstance(event, SignalReceived)
    assert event.by == "token admin"


async def test_what_is_rejected_is_not_carried_out_and_the_model_is_told_why(
    client: httpx2.AsyncClient, house: House
) -> None:
    run = await house.play(with_a_letter())
    body = {"decision": "reject", "reason": "not to Ann"}
    assert (await client.post(f"/v1/runs/{run}/approvals", json=body)).status_code == 202
    state = await house.state(run)
    assert (state.pendings, state.step) == ((), 0)
    assert state.asking is not None
    assert "not to Ann" in " ".join(state.asking.feedback)


async def test_a_question_is_answered(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play(with_a_question())
    answer = await client.post(f"/v1/runs/{run}/answers", json={"answer": "the cellar"})
    assert (answer.status_code, answer.json()["status"]) == (202, "running")
    assert (await house.state(run)).messages == ("the cellar",)


@pytest.mark.parametrize("closed", [whole_run, lambda: whole_run()[:4]])
async def test_a_run_that_is_done_or_asks_nothing_takes_no_answer(
    client: httpx2.AsyncClient, house: House, closed: Any
) -> None:
    run = await house.play(closed())
    before = await house.state(run)
    answer = await client.post(f"/v1/runs/{run}/answers", json={"answer": "hello?"})
    assert refusal(answer) == (409, "not_heard", None)
    assert await house.state(run) == before


@pytest.mark.parametrize(
    ("part", "body", "field"),
    [
        ("approvals", {}, "decision"),
        ("approvals", {"decision": "maybe", "arguments_hash": OTHER}, "decision"),
        ("approvals", {"decision": "approve"}, "arguments_hash"),
        ("approvals", {"decision": "approve", "arguments_hash": "0" * 15}, "arguments_hash"),
        ("approvals", {"decision": "approve", "arguments_hash": OTHER, "step": 0}, "step"),
        ("approvals", {"decision": "reject", "reason": "x" * 8193}, "reason"),
        ("approvals", {"decision": "reject", "why": "x"}, "why"),
        ("answers", {}, "answer"),
        ("answers", {"answer": 1}, "answer"),
        ("answers", {"answer": "x" * 8193}, "answer"),
        ("answers", {"answer": "x", "outcome": "perhaps"}, "outcome"),
        ("answers", {"answer": "x", "constraints": {"max_step": 1}}, "constraints.max_step"),
        ("signals", {"kind": "answer"}, "message"),
        ("signals", {"kind": "approve"}, "arguments_hash"),
        ("signals", {"kind": "message", "message": "x", "outcome": "ran"}, "outcome"),
        ("signals", {"kind": "resume", "step": 1}, "step"),
        ("signals", {"kind": "answer", "message": "x", "arguments_hash": OTHER}, "arguments_hash"),
    ],
)
async def test_what_does_not_fit_is_refused_with_the_field_and_changes_nothing(
    client: httpx2.AsyncClient, house: House, part: str, body: dict[str, Any], field: str
) -> None:
    run = await house.play(with_a_letter())
    before = await house.state(run)
    assert refusal(await client.post(f"/v1/runs/{run}/{part}", json=body)) == (422, "invalid", field)
    assert await house.state(run) == before
