"""A gateway that is killed or stopped goes on telling where it was: nothing is lost, and ids stay the same."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ductile_gateway.outbound.notifications import Arrived, NotYet, SendResult
from tests.gateway.outbound_parts import ENDINGS, Town, an_event, down, read
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


async def test_hundreds_of_runs_with_a_receiver_down_for_hours_all_arrive_when_it_is_back(tmp_path: Path) -> None:
    town = Town(tmp_path, subscribers=("up", "down"), relayed=ENDINGS)
    town.sender.answers |= {"subscription:down": down, "relay": down}
    async with town.telling() as outbound:
        await asyncio.gather(*(outbound.take(read(an_event(run_id=f"run_{n}"))) for n in range(300)))
        await town.settled()
        await until(lambda: town.outcomes == Counter({("subscription:up", "arrived"): 300}))
        await town.pass_by(4 * 3600, step_s=1800)
    assert max(Counter(town.sender.keys("subscription:down")).values()) <= 6
    town.sender.answers.clear()
    async with town.telling() as outbound:
        await town.pass_by(8 * 3600, step_s=1800)
        await until(
            lambda: town.outcomes == Counter({("subscription:down", "arrived"): 300, ("relay", "arrived"): 300})
        )
    assert not town.grave.buried
