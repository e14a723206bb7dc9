"""The comparison measures what it says: every runtime does the job durably, as `make bench-peers` runs it."""

from pathlib import Path

import pytest

from tests.peers.compare import ALL, KILLED_RUNS, Peer, Running, killed
from tests.peers.job import STEPS, times_written

EACH = pytest.mark.parametrize("peer", ALL, ids=lambda peer: peer.name)


def there(peer: Peer) -> None:
    if peer.missing:
        pytest.skip(peer.missing)


@EACH
def test_every_run_ends_and_every_step_writes_once(peer: Peer, tmp_path: Path) -> None:
    there(peer)
    with Running(peer, tmp_path) as running:
        told = running.run("all", 4, 2)
        running.order("go_on", "all", 4)
        assert (len(told["run_s"]), running.answer()) == (4, {"ended": 4, "twice": 0})
    if peer.kills and peer.module != "on_agentic":  # whose plugin notes its calls in words of its own
        assert sorted(times_written(tmp_path)) == [
            f"all-{run} step {step}" for run in range(4) for step in range(1, STEPS + 1)
        ]


@EACH
def test_what_was_under_way_at_a_kill_ends_after_it(peer: Peer, tmp_path: Path) -> None:
    there(peer)
    if not peer.kills:
        pytest.skip("its tool writes nothing that could be counted")
    assert killed(peer, tmp_path)["ended"] == KILLED_RUNS
