"""A person is asked over the bus and answers over the bus, while the agent is killed at the worst moments."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from schemas import keys, subjects
from tests.e2e.bodies import FRAME
from tests.e2e.by_hand import Bench, bench, one_step
from tests.kit.waiting import until

ASKED_FIRST = {"put": "always"}
IN_DOUBT = {"class": "in_doubt", "message": "the answer was lost", "retryable": False}


MET = [{"item": f"d{n}", "evidence": "step:1"} for n in (1, 2, 3)]
LOOKS = {"action": {"tool": "look", "command": "handle", "arguments": {"where": "cellar"}}}
ASKS = {
    "name": "asks",
    "rules": [
        FRAME,
        {
            "phase": "plan",
            "ask": {"question": "Which sensor?", "choices": ["hall", "cellar"], "tried": "Both are doors."},
        },
        {"phase": "reflect", "when": {"steps": 1}, "reflect": {"verdict": "done", "summary": "done", "met": MET}},
        {
            "phase": "reflect",
            "when": {"person": "cellar"},
            "reflect": {"verdict": "continue", "summary": "it is the cellar"},
            "plan": LOOKS,
        },
    ],
}
"""It asks which sensor is meant, and looks at the one that is answered."""


async def kept(made: Bench, subject: str) -> list[dict[str, Any]]:
    """The payloads that the stream of work holds of `subject`."""
    jetstream = made.client.jetstream()
    state = (await jetstream.stream_info(subjects.STREAM)).state
    stored = [await jetstream.get_msg(subjects.STREAM, seq) for seq in range(state.first_seq or 1, state.last_seq + 1)]
    return [json.loads(message.data or b"{}")["payload"] for message in stored if message.subject == subject]


async def asked(made: Bench) -> dict[str, Any]:
    """What waits for a person, once the bus is told."""
    found: list[dict[str, Any]] = []

    async def is_told() -> bool:
        found[:] = await kept(made, subjects.WAITING)
        return bool(found)

    await until(is_told, within_s=20)
    return found[-1]


async def say(made: Bench, run_id: str, signal_id: str, *, msg_id: str | None = None, **said: Any) -> None:
    key = keys.signal(run_id, signal_id)
    message = {"type": subjects.SIGNAL, "payload": {"run_id": run_id, "signal_id": signal_id} | said, "dedupe_key": key}
    await made.publish(subjects.SIGNAL, message, msg_id=msg_id or key)


async def crash(made: Bench) -> None:
    made.agent.kill()
    await until(made.is_ready, within_s=30)


async def test_a_write_waits_for_its_approval_through_crashes_and_is_asked_and_done_once(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("put"), mortal=True, approve=ASKED_FIRST) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        waiting = await asked(made)
        assert [waiting[name] for name in ("kind", "run_id", "step", "tool", "command", "arguments")] == [
            *("approval", run_id, 1, "put", "handle"),
            {},
        ]
        await crash(made)
        assert made.heard == []
        await say(made, run_id, "s-1", kind="approve", step=1, arguments_hash=waiting["arguments_hash"], by="ann")
        await crash(made)
        request = await made.request(1)
        await made.answer(request)
        view = await made.ended(run_id)
        assert (view["state"], [step["step"] for step in view["steps"]]) == ("done", [1])
        assert (len(made.requests), len(await kept(made, subjects.WAITING))) == (1, 1)
        entries = (await made.get(f"/v1/runs/{run_id}/entries")).json()["entries"]
        assert [entry["event"]["by"] for entry in entries if entry["kind"] == "SignalReceived"] == ['bus, says "ann"']


async def test_a_question_is_asked_once_and_its_answer_is_not_lost_to_a_crash(tmp_path: Path) -> None:
    async with bench(tmp_path, ASKS, mortal=True) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        waiting = await asked(made)
        told = [waiting[name] for name in ("kind", "question", "choices", "tried")]
        assert told == ["question", "Which sensor?", ["hall", "cellar"], "Both are doors."]
        await crash(made)
        view = (await made.get(f"/v1/runs/{run_id}")).json()
        assert (view["state"], view["waiting_for"]["kind"], view["asks"]["question"]) == (
            *("paused", "question"),
            "Which sensor?",
        )
        answer = {"answer": "the cellar", "signal_id": "s-1"}
        assert (await made.http.post(f"/v1/runs/{run_id}/answers", json=answer)).status_code == 202
        await crash(made)
        assert (await made.http.post(f"/v1/runs/{run_id}/answers", json=answer)).status_code == 202, "the same again"
        request = await made.request(1)
        assert request["tool_payload"] == {"where": "cellar"}
        await made.answer(request)
        assert (await made.ended(run_id))["state"] == "done"
        assert (len(made.requests), len(await kept(made, subjects.WAITING))) == (1, 1)


async def said_while_down(made: Bench, waiting: dict[str, Any], **said: Any) -> None:
    """The agent is stopped, a person says something, and what waits for it expires."""
    await made.here.stop()
    await say(made, waiting["run_id"], "s-1", **said)
    expires_at = datetime.fromisoformat(waiting["expires_at"])
    await until(lambda: datetime.now(UTC) > expires_at, within_s=10)


async def test_a_message_that_waits_on_the_bus_answers_a_question_before_it_expires_at_the_start(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, ASKS, limits={"answer_s": 6}) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        await said_while_down(made, await asked(made), kind="message", message="the cellar")
        made.here.start()
        request = await made.request(1)
        assert request["tool_payload"] == {"where": "cellar"}
        await made.answer(request)
        await until(made.is_ready, within_s=20)
        assert (await made.ended(run_id))["state"] == "done"


@pytest.mark.parametrize(("outcome", "step"), [("ran", "ok"), ("did_not_run", "error")])
async def test_a_write_in_doubt_is_settled_by_a_persons_word_through_a_crash(
    tmp_path: Path, outcome: str, step: str
) -> None:
    async with bench(tmp_path, one_step("put"), mortal=True) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        await made.answer(await made.request(1), status="error", error=IN_DOUBT, result=None)
        assert (await made.ended(run_id))["state"] == "escalated"
        assert (await asked(made))["kind"] == "in_doubt"
        await say(made, run_id, "s-1", kind="answer", message="I looked", outcome=outcome)
        await crash(made)

        async def is_reopened() -> bool:
            return bool(await kept(made, subjects.REOPENED))

        await until(is_reopened, within_s=30)
        view = await made.ended(run_id)
        assert (view["reopened"], view["steps"][0]["status"]) == (1, step)
        (told,) = await kept(made, subjects.REOPENED)
        assert (told["answer_to"], told["by"], told["message"]) == ("in_doubt", "bus", "I looked")
        assert len(made.requests) == 1
