"""`make chaos-cluster` in small: two agents and two gateways on three nodes, of each of which one is killed."""

from pathlib import Path

import pytest

from tests.e2e.chaos_cluster import Plan, figures

FAULTS = ("agent killed", "gateway killed, started at once", "leader killed")


@pytest.mark.timeout(400)
async def test_nothing_is_lost_or_done_twice_and_what_the_dead_had_goes_on_elsewhere(tmp_path: Path) -> None:
    plan = Plan(agents=2, gateways=2, runs=30, open_runs=6, wait_s=0.2, faults=FAULTS, times=1)
    found = await figures(plan, tmp_path)
    assert (found["holes"], [told["copies_not_current"] for told in found["faults"].values()]) == ({}, [[]] * 3)
    silences = {fault: told["silence_s"]["max"] for fault, told in found["faults"].items()}
    assert (found["lost"], found["never_ended"], found["ended_twice"], found["accepted_twice"]) == (0, [], [], [])
    assert (found["writes_missing"], found["writes_made_twice"]) == (0, [])
    assert found["listed_otherwise_by_another_agent"] == []
    assert silences["agent killed"] < 15.0, silences
