"""Calls in a Ductile."""

import asyncio
from pathlib import Path
from typing import Any

from ductile_gateway.calls.call import CALL_ID, NeverStarted, Verdict
from schemas.continuation import Retrieve
from tests.ductile.running import OF_A_PIPELINE, PIPELINE, a_call, gateway, outcome, ran
from tests.ductile.under_test import DuctileUnderTest
from tests.kit.waiting import beside, until

ASKS = {"action": "retrieve", "query": "what may be relaxed?"}
PLUGINS = ("probe", PIPELINE)
ENDINGS: list[tuple[str, str, dict[str, Any], str, str, int]] = [
    ("probe", "look", {"text": "Grüße"}, "ok", "done", 1),
    ("probe", "note", {CALL_ID: "run_of_another:1:probe:1"}, "ok", "done", 1),
    (PIPELINE, "handle", {}, "ok", "done", 1),
    ("probe", "note", {"do": "refuse"}, "invalid_arguments", "as you wish", 1),
    ("probe", "note", {"do": "stumble"}, "tool_error", "as you wish", 4),
    ("probe", "note", {"do": "garbage"}, "bad_output", "", 4),
    ("probe", "note", {"do": "silence"}, "bad_output", "", 4),
    ("probe", "note", {"do": "flood"}, "bad_output", "exceeded max size", 4),
    *((plugin, "handle", {"do": "say", "says": {"continuation": ASKS}}, "continuation", "", 1) for plugin in PLUGINS),
    ("probe", "note", {"do": "say", "says": {"continuation": {"action": "retrieve"}}}, "bad_output", "query is mis", 1),
    (
        *("probe", "note", {"do": "say", "says": {"status": "continuation", "continuation": ASKS}}),
        *("bad_output", "invalid status value", 4),
    ),
    ("probe", "vanish", {}, "configuration", "", 0),
    ("probe", "../x", {}, "configuration", "", 0),
    ("a?b", "note", {}, "configuration", "", 0),
]
"""Plugin, command, payload; status or class of error, text, and number of executions."""


async def test_each_call_ends_as_its_plugin_did_and_is_run_once_with_its_id(
    shared: DuctileUnderTest, tmp_path: Path
) -> None:
    calls = [a_call(command, plugin=plugin, within_s=60, **payload) for plugin, command, payload, *_ in ENDINGS]
    async with gateway(shared, tmp_path, tools=OF_A_PIPELINE) as runner:
        verdicts = await asyncio.gather(*(runner.run(call) for call in calls))
        forgotten = [await runner.resume(call) for call in calls if not ran(shared, call)]
    for call, verdict, (plugin, _, payload, status, said, times) in zip(calls, verdicts, ENDINGS, strict=True):
        found, executions = outcome(verdict), ran(shared, call)
        assert (found.error_class or found.status) == status, found
        assert said in (found.message or found.text), found
        assert not found.retryable
        assert found.continuation == (Retrieve.model_validate(ASKS) if status == "continuation" else None)
        assert times == len(executions), found
        assert not executions or found.job.job_id == executions[0].job_id
        if times > 0:
            assert (found.job.attempts, found.job.was_rerun) == (times, times > 1), found
        if status == "ok":
            assert found.output == {"payload": {**payload, CALL_ID: call.key}}, plugin
    assert forgotten == [NeverStarted()] * 3


async def test_a_job_that_outlives_its_call_is_told_once_by_the_next_gateway(
    shared: DuctileUnderTest, tmp_path: Path
) -> None:
    call = a_call(within_s=1.5, do="hold", until=str(tmp_path / "gate"))
    async with gateway(shared, tmp_path) as runner:
        assert outcome(await runner.run(call)).error_class == "timeout"
        assert len(runner.several.findings()) == 1
    told: list[tuple[str, Verdict]] = []

    async def take(key: str, verdict: Verdict) -> bool:
        told.append((key, verdict))
        return True

    for _ in range(2):
        async with gateway(shared, tmp_path) as runner, beside(runner.several.follow_late(take)):
            (tmp_path / "gate").touch()
            await until(lambda runner=runner: not runner.several.findings())  # type: ignore[misc]
    ((key, verdict),) = told
    assert (key, outcome(verdict).status, len(ran(shared, call))) == (call.key, "ok", 1)


async def test_a_job_that_ductile_ran_again_after_it_was_killed_says_so(
    shared: DuctileUnderTest, tmp_path: Path
) -> None:
    call = a_call(do="hold", until=str(tmp_path / "gate"))
    async with gateway(shared, tmp_path) as runner:
        running = asyncio.create_task(runner.run(call))
        await until(lambda: ran(shared, call))
        await asyncio.to_thread(shared.kill)
        await asyncio.to_thread(shared.start)
        await until(lambda: len(ran(shared, call)) == 2)
        (tmp_path / "gate").touch()
        found = outcome(await running)
    assert (found.status, found.job.attempts) == ("ok", 2)
