"""A gateway that is killed or stopped goes on telling where it was: nothing is lost, and ids stay the same."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ductile_gateway.outbound.notifications import Arrived, NotYet, SendResult
from tests.gateway.outbound_parts import Town, an_event, read
from tests.kit.waiting import until


@pytest.mark.attack(40)
@pytest.mark.parametrize(
    ("when", "method", "tries"),
    [
        ("before", "add", 1),
        ("after", "add", 1),
        ("before", "settle", 2),  # it arrived, and nobody but the receiver knows
        ("after", "settle", 1),
        ("before", "postpone", 2),
        ("after", "postpone", 2),
    ],
)
async def test_a_kill_at_any_write_loses_nothing_and_repeats_only_what_was_not_recorded(
    tmp_path: Path, when: str, method: str, tries: int
) -> None:
    town = Town(tmp_path, subscribers=("a",))
    verdicts: Iterator[SendResult] = iter([NotYet("ConnectError")] if method == "postpone" else [])
    town.sender.answers["subscription:a"] = lambda _: next(verdicts, Arrived())
    async with town.telling() as outbound:
        died = town.dies(when, method)
        take = asyncio.create_task(outbound.take(read(an_event())))
        await died.wait()
        take.cancel()
    async with town.telling() as outbound:
        await outbound.take(read(an_event()))  # the bus has no acknowledgement, and delivers it again
        await town.pass_by(60)
    assert len(town.sender.tries) == tries
    assert len({(one.key, one.body) for one in town.sender.tries}) == 1


@pytest.mark.attack(39)
async def test_a_try_that_a_kill_cut_off_is_made_again_under_the_same_id_and_with_the_same_body(tmp_path: Path) -> None:
    town = Town(tmp_path)
    town.sender.hangs.add("callback")
    async with town.telling() as outbound:
        await outbound.take(read(an_event(has_callback=True)))
        await until(lambda: len(town.sender.tries) == 1)
    town.sender.hangs.clear()
    async with town.telling():
        await town.settled()
    first, second = town.sender.tries
    assert (first.key, first.body) == (second.key, second.body)
