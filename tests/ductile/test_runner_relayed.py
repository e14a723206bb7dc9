"""Calls that reach a Ductile as signed events, the fake and, where there is one, a real one."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import NeverStarted, ToolCall
from tests.ductile.calling import finished
from tests.ductile.fake import FakeDuctile, answers, held
from tests.ductile.runner_house import a_call, gateway, outcome
from tests.ductile.under_test import DuctileUnderTest
from tests.ductile.wires import LossyWire
from tests.kit.waiting import until

ROUTE = "keep-note"
AGAIN_S = 0.05


def by_events(ductile: DuctileUnderTest, kind: str = "probe.asked", **changed: Any) -> dict[str, Any]:
    """The route is called by events of this kind; the probe listens to `probe.asked`."""
    peer = ductile.peer
    known = {"peer": peer.name, "key_id": peer.key_id, "secret": peer.secret, "routes": {ROUTE: kind}}
    return known | {"again_first_s": AGAIN_S, "again_most_s": 2 * AGAIN_S} | changed


def a_note(**payload: Any) -> ToolCall:
    return a_call("handle", plugin=ROUTE, **payload)


async def test_an_event_carries_the_call_and_its_outcome_comes_back(ductile: DuctileUnderTest, tmp_path: Path) -> None:
    call = a_note(text="Grüße")
    async with gateway(ductile, tmp_path, relay=by_events(ductile)) as runner:
        found = outcome(await runner.run(call))
    run_id, step, tool, attempt = call.key.split(":")
    belongs = {"run_id": run_id, "step": int(step), "tool": tool, "attempt": int(attempt)}
    assert (found.status, found.text) == ("ok", "done")
    assert found.output == {"payload": {"text": "Grüße", "agentic_call_id": call.key} | belongs}
    assert [(one.plugin, one.command) for one in ductile.executions] == [("probe", "handle")]


async def test_an_event_whose_answer_was_lost_is_sent_again_and_its_job_is_found(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    wire, call = LossyWire(ductile, lost=1), a_note(text="x")
    async with gateway(ductile, tmp_path, relay=by_events(ductile), wire=wire) as runner:
        assert outcome(await runner.run(call)).status == "ok"
        assert outcome(await runner.resume(call)).status == "ok"
    assert len(wire.sent) == 2
    assert wire.sent[0] == wire.sent[1]
    assert len(ductile.executions) == 1


@pytest.mark.parametrize("arrives", [True, False])
async def test_the_next_gateway_sends_the_event_of_one_that_ended_before_the_answer(
    ductile: DuctileUnderTest, tmp_path: Path, arrives: bool
) -> None:
    wire = LossyWire(ductile, lost=9) if arrives else LossyWire(ductile, swallowed=9)
    call = a_note(text="x")
    async with gateway(ductile, tmp_path, relay=by_events(ductile, again_first_s=15), wire=wire) as runner:
        running = asyncio.create_task(runner.run(call))
        await until(lambda: len(ductile.executions) == 1 if arrives else wire.sent)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    if arrives:
        await asyncio.to_thread(finished, ductile, ductile.executions[0].job_id)
    next_wire = LossyWire(ductile)
    async with gateway(ductile, tmp_path, relay=by_events(ductile), wire=next_wire) as runner:
        assert outcome(await runner.resume(call)).status == "ok"
    assert next_wire.sent == wire.sent
    assert len(ductile.executions) == 1


@pytest.mark.parametrize(
    ("kind", "changed", "why"),
    [
        ("probe.unheard", {}, "no pipeline listens to probe.unheard"),
        ("probe.asked", {"secret": "another-one-altogether"}, "403: 'forbidden'"),
        ("probe.asked", {"key_id": "v9"}, "403: 'relay key id mismatch'"),
        ("probe.asked", {"peer": "nobody"}, "403: 'unknown relay peer'"),
        ("probe.secret", {}, "422: 'event type not allowed for peer'"),
    ],
)
async def test_an_event_that_ductile_refuses_is_a_matter_of_configuration(
    ductile: DuctileUnderTest, tmp_path: Path, kind: str, changed: dict[str, str], why: str
) -> None:
    call = a_note()
    async with gateway(ductile, tmp_path, relay=by_events(ductile, kind, **changed)) as runner:
        found = outcome(await runner.run(call))
        assert await runner.resume(call) == NeverStarted()
    assert (found.error_class, found.retryable) == ("configuration", False)
    assert why in (found.message or "")
    assert not ductile.executions


async def test_a_payload_that_is_too_large_is_a_matter_of_the_arguments(fake: FakeDuctile, tmp_path: Path) -> None:
    async with gateway(fake, tmp_path, relay=by_events(fake)) as runner:
        found = outcome(await runner.run(a_note(text="x" * 300_000)))
    assert (found.error_class, found.retryable) == ("invalid_arguments", False)


async def test_version_n_runs_an_event_once_that_comes_again_while_its_job_runs(
    newer: FakeDuctile, tmp_path: Path
) -> None:
    release = threading.Event()
    newer.on("probe", "handle", held(release, answers("noted")))
    wire = LossyWire(newer, lost=2, waits=False)
    async with gateway(newer, tmp_path, relay=by_events(newer), wire=wire) as runner:
        running = asyncio.create_task(runner.run(a_note()))
        await until(lambda: wire.arrived == 3)
        release.set()
        assert outcome(await running).text == "noted"
    assert len(newer.executions) == 1
