"""Who may only ask has nothing else said by the subject that he names for the answer."""

import json
from pathlib import Path

import pytest

from schemas import subjects
from tests.e2e.by_hand import bench, one_step


@pytest.mark.attack(97, 98)
async def test_a_question_whose_answer_would_cancel_a_run_cancels_none(tmp_path: Path) -> None:
    """The answer to `status` is JSON with a `run_id`: all that a cancel needs."""
    async with bench(tmp_path, one_step("look")) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        first = await made.request(1)
        question = json.dumps({"run_id": run_id}).encode()
        await made.client.publish(subjects.RUN_STATUS, question, reply=subjects.CANCEL)
        answer = await made.client.request(subjects.RUN_STATUS, question)
        assert json.loads(answer.data)["run_id"] == run_id
        await made.answer(first)
        assert (await made.ended(run_id))["state"] == "done"
