"""What something between the gateway and Ductile answers: it is never taken for Ductile's own word on a write."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ductile_gateway.calls.call import NeverStarted, ToolOutcome, Unknown
from ductile_gateway.ductile.answers import own_refusal
from groundwork.service.errors import TryAgain
from tests.ductile.fake import FakeDuctile, answers
from tests.ductile.fake.wire import Answer, says
from tests.ductile.runner_house import QUICK, a_call, gateway, outcome

HTML = b"<html><body>Nothing here</body></html>"
ANSWERS = [
    says(429, {"error": "rate limited"}),
    says(403, {"error": "access denied"}),
    Answer(400, HTML, "text/html"),
    Answer(502, HTML, "text/html"),
    Answer(302, b"", None, {"Location": "http://127.0.0.1:1/login"}),
    Answer(200, HTML, "text/html"),
]
NAMES = [f"{answer.status}-{len(answer.body)}" for answer in ANSWERS]


@pytest.mark.parametrize("answer", ANSWERS, ids=NAMES)
async def test_a_write_that_a_stranger_answered_after_it_passed_is_found_and_not_made_again(
    fake: FakeDuctile, tmp_path: Path, answer: Answer
) -> None:
    fake.faults.strangers.append((answer, True))
    async with gateway(fake, tmp_path) as runner:
        assert outcome(await runner.run(a_call())).status == "ok"
    assert len(fake.executions) == 1


@pytest.mark.parametrize("answer", ANSWERS, ids=NAMES)
async def test_a_write_that_a_stranger_kept_is_made_once_it_is_sure_that_ductile_has_none(
    fake: FakeDuctile, tmp_path: Path, answer: Answer
) -> None:
    fake.faults.strangers.append((answer, False))
    call = a_call()
    async with gateway(fake, tmp_path) as runner:
        with pytest.raises(TryAgain, match="Ductile has no job of the call"):
            await runner.run(call)
        assert await runner.resume(call) == NeverStarted()
        assert outcome(await runner.run(call)).status == "ok"
    assert len(fake.executions) == 1


async def test_a_write_is_not_made_again_while_it_may_be_on_its_way(fake: FakeDuctile, tmp_path: Path) -> None:
    fake.faults.strangers.append((Answer(504), False))
    call = a_call(within_s=1)
    patience = replace(QUICK, in_flight_s=60, patience_s=0.5)
    async with gateway(fake, tmp_path, pace=patience) as runner:
        found = await runner.run(call)
    assert isinstance(found, Unknown)
    assert "504" in found.reason
    assert not fake.executions


@pytest.mark.parametrize("shows", [True, False])
async def test_a_job_of_another_command_is_never_taken_for_the_one_of_a_write(
    fake: FakeDuctile, tmp_path: Path, shows: bool
) -> None:
    fake.on("probe", "look", answers("what was looked at"))
    if not shows:
        fake.on("probe", "note", answers("noted"))
    async with gateway(fake, tmp_path) as runner:
        assert outcome(await runner.run(a_call("look"))).text == "what was looked at"
        fake.faults.strangers.append((says(202, {"job_id": fake.executions[0].job_id}), True))
        found = await runner.run(a_call("note"))
    written = fake.executions[-1].job_id
    jobs = found.job.ids if isinstance(found, ToolOutcome) else found.jobs if isinstance(found, Unknown) else ()
    assert (jobs, isinstance(found, ToolOutcome)) == ((written,), shows)
    assert len(fake.executions) == 2


async def test_behind_a_proxy_that_answers_for_an_absent_ductile_a_write_waits_and_nothing_is_sent(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    call = a_call()
    async with gateway(fake, tmp_path, events=False) as runner:
        for answer in (Answer(502, HTML, "text/html"), says(200, {"status": "ok"})):
            fake.faults.proxied = answer
            with pytest.raises(TryAgain, match="not sent"):
                await runner.run(call)
            assert await runner.resume(call) == NeverStarted()
        fake.faults.proxied = None
        assert outcome(await runner.run(call)).status == "ok"
    assert len(fake.executions) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": "plugin not found"}),
        (403, {"error": "insufficient scope"}),
        (403, {"error": "insufficient scope to trigger pipeline"}),
        (413, {"error": "context too large", "bytes_actual": 2, "bytes_limit": 1}),
    ],
)
def test_ductiles_own_refusals_are_known_by_their_words(status: int, body: dict[str, object]) -> None:
    assert own_refusal(status, json.dumps(body).encode()) == body["error"]
    assert own_refusal(status, json.dumps(body | {"request_id": "of a proxy"}).encode()) is None
    assert own_refusal(429, json.dumps(body).encode()) is None
