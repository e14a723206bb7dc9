"""Calls in a Ductile with faults that only the fake can have, or behind a proxy."""

import asyncio
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from ductile_gateway.calls.call import Job, NeverStarted, Receipt, ToolOutcome, Unknown, Verdict
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.ductile import watch
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.jobs import Unfinished
from ductile_gateway.ductile.runner import FOLLOWED_FOR, DuctileRunner, Ductiles
from ductile_gateway.ductile.watch import Timing
from groundwork.service.errors import TryAgain
from groundwork.service.machine import utc_now
from tests.ductile.fake import FakeDuctile, behaviours
from tests.ductile.fake.server import LOST, UNAVAILABLE, says
from tests.ductile.running import NOWHERE, OF_A_PIPELINE, PIPELINE, QUICK, a_call, gateway, outcome, ran
from tests.ductile.under_test import Execution
from tests.kit.fakes import still
from tests.kit.http_server import Response
from tests.kit.waiting import until
from tests.ledger.kit import an_answer, embedded

ONLY_EVENTS = Timing(first_s=15.0, most_s=15.0)
"""Polls so seldom that a call ends in time only by an event."""
HTML = b"<html><body>Nothing here</body></html>"

CUT = behaviours.Outcome(b"no JSON", stderr=f"{'x' * 3000}\nSHED_API_KEY is not set, token-of-gateway is")
UNROUTED = "what follows from it failed: Ductile could not store its state or pass on its events: route events"
ENDINGS: list[tuple[behaviours.Behaviour, str, int]] = [
    (behaviours.in_turn(behaviours.fails(), behaviours.fails(), behaviours.answers("at last")), "at last", 3),
    (lambda _: behaviours.ROUTING_FAILED, f"done\n[the tool has succeeded, but {UNROUTED}: no such path]", 1),
    (lambda _: behaviours.SKIPPED, "Skipped by Ductile: if: false", 1),
    (lambda _: behaviours.DEAD, "unknown", 1),
    (lambda _: behaviours.TIMED_OUT, "timeout", 4),
    (lambda _: CUT, "bad_output", 4),
]


async def test_each_end_that_ductile_has_for_a_job_ends_the_call(fake: FakeDuctile, tmp_path: Path) -> None:
    async with gateway(fake, tmp_path) as runner:
        for behaviour, ending, executions in ENDINGS:
            fake.on("probe", "note", behaviour)
            found = await runner.run(call := a_call())
            told = "unknown" if isinstance(found, Unknown) else outcome(found).error_class or outcome(found).text
            assert (told.startswith(ending), len(ran(fake, call))) == (True, executions), found
    assert outcome(found).job.stderr == "SHED_API_KEY is not set, *** is"


async def test_what_a_plugin_or_ductile_says_of_an_error_is_told_without_the_token(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    said = f"401 for {fake.token}"
    dead = behaviours.Outcome(ends="dead", last_error=said)
    fake.on("probe", "note", behaviours.fails(said, retry=False))
    fake.on("probe", "handle", lambda _: dead)
    async with gateway(fake, tmp_path, tools=OF_A_PIPELINE) as runner:
        failed, given_up = outcome(await runner.run(a_call())), await runner.run(a_call("handle", plugin=PIPELINE))
    assert failed.message == "401 for ***"
    assert isinstance(given_up, Unknown)
    assert given_up.reason.endswith("401 for ***")


async def test_while_ductile_still_tries_a_call_ends_at_its_deadline(tmp_path: Path) -> None:
    with FakeDuctile(backoff_seconds=60) as fake:
        async with gateway(fake, tmp_path) as runner:
            found = outcome(await runner.run(a_call(within_s=1, do="stumble")))
    assert (found.error_class, "because of: as you wish" in (found.message or "")) == ("timeout", True), found


# Answers that were lost, or are a stranger's


ANSWERS = [
    says(429, {"error": "rate limited"}),
    says(403, {"error": "access denied"}),
    Response(400, HTML, "text/html"),
    Response(502, HTML, "text/html"),
    Response(302, headers={"Location": "http://127.0.0.1:1/login"}),
    Response(200, HTML, "text/html"),
]


async def test_a_write_whose_answer_was_lost_or_a_strangers_is_found_and_not_made_again(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    async with gateway(fake, tmp_path) as runner:
        for answer in (*ANSWERS, LOST, UNAVAILABLE):
            fake.faults.strangers.append((answer, True))
            verdicts = [await runner.run(call := a_call()), await runner.resume(call)]
            assert [outcome(verdict).status for verdict in verdicts] == ["ok", "ok"], answer
            assert len(ran(fake, call)) == 1, answer


async def test_a_job_that_runs_is_waited_for_while_it_may_yet_show_to_be_that_of_a_write(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    def slowly(execution: Execution) -> behaviours.Outcome:
        time.sleep(3 * QUICK.settle_s)
        return behaviours.probe(execution)

    fake.on("probe", "note", slowly)
    fake.faults.strangers.append((LOST, True))
    async with gateway(fake, tmp_path) as runner:
        assert outcome(await runner.run(a_call())).status == "ok"
    assert len(fake.executions) == 1


async def test_a_write_that_a_stranger_kept_is_made_once_it_is_sure_that_ductile_has_none(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    for answer in ANSWERS:  # each of a gateway that knows no job of those before
        async with gateway(fake, tmp_path) as runner:
            fake.faults.strangers.append((answer, False))
            with pytest.raises(TryAgain, match="Ductile has no job of the call"):
                await runner.run(call := a_call())
            assert await runner.resume(call) == NeverStarted()
            assert outcome(await runner.run(call)).status == "ok"
            assert len(ran(fake, call)) == 1, answer


async def test_a_write_is_unknown_after_ductile_has_lost_the_only_job_that_it_had(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    async with gateway(fake, tmp_path, timing=replace(QUICK, patience_s=1)) as runner:
        await runner.ledger.intend(call := a_call(within_s=1), Receipt(utc_now(), newest=""))
        fake.kill()
        fake.start(without_jobs=True)
        assert isinstance(await runner.resume(call), Unknown)


async def test_a_write_is_not_made_again_while_it_may_be_on_its_way(fake: FakeDuctile, tmp_path: Path) -> None:
    fake.faults.strangers.append((Response(504), False))
    async with gateway(fake, tmp_path, timing=replace(QUICK, in_flight_s=60, patience_s=0.5)) as runner:
        found = await runner.run(a_call(within_s=1))
    assert isinstance(found, Unknown)
    assert "504" in found.reason
    assert not fake.executions


@pytest.mark.parametrize("why", ["setting", "closed", "pipeline"])
async def test_a_call_without_an_id_is_unknown_after_its_answer_was_lost(
    fake: FakeDuctile, tmp_path: Path, why: str
) -> None:
    fake.faults.strangers.append((LOST, True))
    tools = DuctileTools(closed=frozenset({("probe", "note")})) if why == "closed" else OF_A_PIPELINE
    call = a_call("handle", plugin=PIPELINE) if why == "pipeline" else a_call()
    async with gateway(fake, tmp_path, tools=tools, send_call_id=why != "setting") as runner:
        assert isinstance(await runner.run(call), Unknown)


async def test_a_job_of_another_command_is_never_taken_for_the_one_of_a_write(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    async with gateway(fake, tmp_path) as runner:
        await runner.run(a_call("look"))
        fake.faults.strangers.append((says(202, {"job_id": fake.executions[0].job_id}), True))
        found = outcome(await runner.run(a_call("note")))
    assert [one.command for one in fake.executions] == ["look", "note"]
    assert found.job.job_id == fake.executions[1].job_id


@pytest.mark.parametrize(("plugin", "command"), [("probe", "note"), (PIPELINE, "handle")])
async def test_behind_a_proxy_that_answers_for_an_absent_ductile_a_write_waits_and_nothing_is_sent(
    fake: FakeDuctile, tmp_path: Path, plugin: str, command: str
) -> None:
    call = a_call(command, plugin=plugin)
    async with gateway(fake, tmp_path, tools=OF_A_PIPELINE, events=False) as runner:
        for answer in (Response(502, HTML, "text/html"), says(200, {"status": "ok"})):
            fake.faults.proxied = answer
            with pytest.raises(TryAgain, match="not sent"):
                await runner.run(call)
            assert await runner.resume(call) == NeverStarted()
        fake.faults.proxied = None
        assert outcome(await runner.run(call)).status == "ok"
    assert len(fake.executions) == 1


async def test_a_job_that_cannot_be_read_is_an_error_of_its_call(fake: FakeDuctile, tmp_path: Path) -> None:
    job: dict[str, Any] = {}

    def odd(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return httpx2.Response(202, json={"job_id": "j-1"})
        return httpx2.Response(200, json=job if request.url.path == "/job/j-1" else {"logs": [], "queue_depth": 0})

    async with gateway(fake, tmp_path, transport=httpx2.MockTransport(odd), events=False) as runner:
        for job in (
            {"status": {"code": 1}},
            {"status": "succeeded", "result": {"status": ["ok"], "result": "x"}},
            {"status": "failed", "result": 7},
        ):
            assert outcome(await runner.run(a_call(within_s=2))).status == "error", job


OK = {"status": "ok", "result": "the first"}
GONE = (404, {"error": "job not found"})
BROKEN: list[tuple[str, tuple[int, Any], Any, Any, str]] = [
    (
        "a later step wrote no JSON",
        (200, {"status": "succeeded", "result": OK}),
        b"",
        OK,
        "one may have written no JSON",
    ),
    ("so did the first", (200, b""), b"", None, "the job has failed in Ductile: not valid JSON"),
    ("a later step wrote too much", (200, {"status": "succeeded"}), b"[" * 10**5 + b"]" * 10**5, OK, "too deep"),
    ("its jobs were deleted", GONE, [], OK, "knows nothing of its job j-1 any more"),
    ("the first of them had failed", GONE, [], None, "the job has failed in Ductile: not valid JSON"),
]
"""Case; the first job's status and document, the tree, and the first job's result in the log; what is told."""


@pytest.mark.parametrize(("job", "tree", "logged", "told"), [one[1:] for one in BROKEN], ids=[one[0] for one in BROKEN])
async def test_a_pipeline_whose_steps_cannot_be_read_is_not_judged_by_its_first_one(
    fake: FakeDuctile, tmp_path: Path, job: tuple[int, Any], tree: Any, logged: Any, told: str
) -> None:
    entry = (
        {"status": "succeeded", "result": logged} if logged else {"status": "failed", "last_error": "not valid JSON"}
    )
    answers = {"/job/j-1": job, "/job/j-1/tree": (200, tree), "/job-logs": (200, {"logs": [entry]})}

    def ductile(request: httpx2.Request) -> httpx2.Response:
        started = (202, {"job_id": "j-1"}) if request.method == "POST" else (200, {"queue_depth": 0})
        status, body = answers.get(request.url.path, started)
        return httpx2.Response(status, **{"content" if isinstance(body, bytes) else "json": body})

    async with gateway(
        fake, tmp_path, tools=OF_A_PIPELINE, transport=httpx2.MockTransport(ductile), events=False
    ) as runner:
        found = await runner.run(a_call("handle", plugin=PIPELINE, within_s=2))
    assert told in str(found.reason if isinstance(found, Unknown) else outcome(found).message)


async def test_a_call_that_the_token_does_not_open_says_where_to_look_and_without_events_jobs_are_polled(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    async with gateway(fake, tmp_path, token=fake.tokens["reader"]) as runner:
        refused = outcome(await runner.run(a_call()))
        assert outcome(await runner.run(a_call("look"))).status == "ok"
    told = "Ductile answered 403: insufficient scope. `agentic doctor` says what gateway.ductile.token lacks"
    assert (refused.error_class, refused.message) == ("configuration", told)


async def test_a_job_is_told_without_the_log_of_jobs_where_the_token_does_not_open_it(tmp_path: Path) -> None:
    with FakeDuctile(version="N", tokens={"gateway": ("plugin:rw", "jobs:status:ro", "jobs:result:ro")}) as ductile:
        async with gateway(ductile, tmp_path, events=False) as runner:
            assert outcome(await runner.run(a_call(do="silence", within_s=5))).error_class == "bad_output"


# Away, and too much at a time


async def test_a_ductile_that_stays_away_is_waited_for_as_long_as_the_answer_is_wanted(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    call = a_call(within_s=0.5, do="hold", until=str(tmp_path / "gate"))
    wanted = {"deadline_at": call.deadline_at + timedelta(seconds=0.7)}
    call = replace(call, asked=replace(call.asked, request=call.asked.request.model_copy(update=wanted)))
    async with gateway(fake, tmp_path, timing=replace(QUICK, patience_s=0)) as runner:
        running = asyncio.create_task(runner.run(call))
        await until(lambda: fake.executions)
        fake.kill()
        found = outcome(await running)
    assert (found.error_class, "is away" in str(found.message)) == ("timeout", True)
    assert datetime.now(UTC) > call.deadline_at + timedelta(seconds=0.7)


async def test_an_event_ends_the_wait_for_a_job(fake: FakeDuctile, tmp_path: Path) -> None:
    async with gateway(fake, tmp_path, timing=ONLY_EVENTS) as runner:
        fake.on("probe", "look", behaviours.held(release := threading.Event()))
        running = asyncio.create_task(runner.run(a_call("look")))
        await until(lambda: fake.executions)
        release.set()
        async with asyncio.timeout(5):
            assert outcome(await running).status == "ok"


async def test_events_are_followed_again_once_they_are_no_longer_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "REFUSED_PAUSE_S", 0.01, raising=False)
    refusals = [httpx2.Response(status) for status in (429, 401, 404)]
    stream = httpx2.Response(200, headers={"content-type": "text/event-stream"})
    transport = httpx2.MockTransport(lambda _: refusals.pop() if refusals else stream)
    async with open_api(NOWHERE, transport) as api:
        jobs = watch.JobWatch(api, cast("Ledger", None), watch.Timing())
        following = asyncio.create_task(jobs.follow_events())
        with jobs.hint_for("j-1") as hint:
            async with asyncio.timeout(20):
                await hint.wait()
        assert not following.done()
        following.cancel()
    assert [record.levelname for record in caplog.records if record.name == watch.__name__] == ["WARNING"]


async def test_a_job_that_ended_is_no_timeout_because_its_log_is_slow(fake: FakeDuctile, tmp_path: Path) -> None:
    async def slow(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return httpx2.Response(202, json={"job_id": "j-1"})
        await asyncio.sleep({"/job/j-1": 0.6, "/job-logs": 60}.get(request.url.path, 0))
        ended = {"status": "succeeded", "result": {"status": "ok", "result": "done"}}
        return httpx2.Response(200, json=ended | {"queue_depth": 0})

    transport, timing = httpx2.MockTransport(slow), replace(QUICK, patience_s=0)
    async with gateway(fake, tmp_path, transport=transport, timing=timing, events=False) as runner:
        assert outcome(await runner.run(a_call("look", within_s=0.3))).text == "done"


async def test_a_call_is_not_begun_while_the_queue_is_too_long(fake: FakeDuctile, tmp_path: Path) -> None:
    async with gateway(fake, tmp_path, queue_most=2) as runner:
        runner.health.queue = 3
        with pytest.raises(TryAgain, match="3 jobs waiting or running, more than 2"):
            await runner.run(call := a_call())
        assert await runner.resume(call) == NeverStarted()
        for depth in (None, 2):
            runner.health.queue = depth
            assert outcome(await runner.run(a_call())).status == "ok"


# Late jobs


async def test_late_jobs_are_told_once_they_can_be_and_given_up_after_a_day(tmp_path: Path) -> None:
    told: dict[str, Verdict] = {}
    refused: list[str] = []

    class Watch:
        async def poll(self, job: Job) -> Unfinished | ToolOutcome:
            return Unfinished() if job.job_id == "never" else ToolOutcome("ok", text=job.job_id)

    class Runner:
        watch = Watch()

    async def take(key: str, verdict: Verdict) -> bool:
        if key == "poison":
            raise ValueError("no number has so many digits")
        if key == "not answered yet" and not refused:
            refused.append(key)
            return False
        assert key not in told, "told twice"
        told[key] = verdict
        return True

    async with embedded(tmp_path)() as kept:
        for number, key in enumerate(("poison", "never", "fine", "not answered yet")):
            since = datetime.now(UTC) + timedelta(days=number == 3, seconds=number)
            await kept.ledger.answer(replace(an_answer(), key=key))
            await kept.ledger.outlived(key, Job(key, pipeline=False), since)
        still(datetime.now(UTC) + FOLLOWED_FOR + timedelta(minutes=1))
        several = Ductiles({"": cast("DuctileRunner", Runner())}, kept.ledger, 0.01)
        following = asyncio.create_task(several.follow_late(take))
        await until(lambda: not several.findings())
        assert not following.done()
        following.cancel()
    assert (set(told), refused) == ({"never", "fine", "not answered yet"}, ["not answered yet"])
    assert isinstance(told["never"], Unknown)
