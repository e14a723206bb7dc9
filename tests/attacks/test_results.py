"""Results from a client that was not asked and knows everything of a run but its capability.

The unprotected twin is a tool of RFC-103's plain form on the same agent.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from schemas import keys, subjects
from tests.attacks.http_caller import HttpCaller
from tests.attacks.results import NOW, Publisher, publishing
from tests.attacks.services import TOKENS, Services
from tests.attacks.targets import SIDES, judge, rows


@pytest.fixture(scope="session")
def known() -> set[str]:
    return set()


@pytest.fixture
async def target(side: str, services: Services, known: set[str]) -> AsyncIterator[Publisher]:
    """Checks that the next run still gets the executor's answer."""
    protected = side == "ours"
    caller = HttpCaller(url=services.api, protected=protected, token=TOKENS["operator"])
    async with publishing(services.bus, caller, protected=protected, known=known) as publisher:
        yield publisher
    assert services.living(), "this took a service down, or made it say that it is not ready"


@pytest.mark.parametrize("side", ["ours"])
async def test_who_was_asked_is_believed(target: Publisher) -> None:
    assert await target.goes_on_with_its_own(await target.waits())


MADE_UP: tuple[Any, ...] = ("made.up", "", None, 7, [], {}, "x" * 10_000, "k1.\n", "ü")
FAILED = {"class": "not_allowed", "message": "no", "retryable": False}
SAID: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "a result of the pending step": ((50, 98), {}),
    "a step of the future ends the run": ((50, 98), {"step": 999}),
    "another tool ends the run": ((50, 98), {"tool": "open-too"}),
    "a failure ends the step": ((50, 98), {"status": "error", "result": ..., "error": FAILED}),
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("said", rows(SAID))
async def test_strike(target: Publisher, said: dict[str, Any]) -> None:
    run = await target.waits()
    judge(target, {"gone on": await target.changes(run, run.result(**said))})


@pytest.mark.attack(98)
@pytest.mark.parametrize("side", SIDES)
async def test_a_result_with_the_capability_of_a_run_of_ones_own(target: Publisher) -> None:
    mine, run = await target.waits(), await target.waits()
    judge(target, {"gone on": await target.changes(run, run.result(capability=mine.capability))})


@pytest.mark.attack(98)
@pytest.mark.parametrize("side", ["ours"])
async def test_a_capability_that_is_made_up_or_right_but_for_a_letter(target: Publisher) -> None:
    run = await target.waits()
    changed = (run.capability.upper(), run.capability.lower(), run.capability[:-1], f"{run.capability}A")
    for one in (*MADE_UP, *changed):
        if one != run.capability:
            judge(target, {f"{one!r:.40}": await target.changes(run, run.result(capability=one))})


@pytest.mark.attack(98)
@pytest.mark.parametrize("side", SIDES)
async def test_the_result_in_its_envelope_under_its_own_key(target: Publisher) -> None:
    run = await target.waits()
    key = keys.result(run.id, 1, 1)
    message = {"type": "agentic.tool_result", "payload": run.result(attempt=1), "dedupe_key": key}
    judge(target, {"gone on": await target.changes(run, message, msg_id=key)})


@pytest.mark.attack(99)
@pytest.mark.parametrize("side", ["ours"])
async def test_the_place_of_the_honest_answer_is_taken(target: Publisher) -> None:
    run = await target.waits()
    for number in range(1, 4):
        key = keys.result(run.id, 1, 1) + (f"#{number}" if number > 1 else "")
        await target.says({"type": "agentic.tool_result", "payload": {}, "dedupe_key": key}, msg_id=key)
    await target.says(run.result(completed_at=NOW), msg_id=keys.dedupe_key(subjects.COMPLETED, run.id))
    assert await target.goes_on_with_its_own(run)
