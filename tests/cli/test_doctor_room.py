"""`agentic doctor` says when a stream that refuses what is beyond its bound is nearly full."""

import pytest
from nats.js.api import DiscardPolicy, StreamConfig, StreamInfo, StreamState

from agent_service.cli.doctor.cluster import judged


def stream(taken: int, most: int, discard: DiscardPolicy) -> StreamInfo:
    config = StreamConfig(name="OBJ_agentic-artifacts", max_bytes=most, discard=discard)
    state = StreamState(messages=1, bytes=taken, first_seq=1, last_seq=1, consumer_count=0)
    return StreamInfo(config=config, state=state)


@pytest.mark.parametrize(
    ("taken", "most", "discard", "mark"),
    [
        (79, 100, DiscardPolicy.NEW, "ok"),
        (80, 100, DiscardPolicy.NEW, "warning"),
        (100, 100, DiscardPolicy.OLD, "ok"),
        (100, -1, DiscardPolicy.NEW, "ok"),
    ],
)
def test_four_fifths_of_what_refuses_more_are_warned_of(
    taken: int, most: int, discard: DiscardPolicy, mark: str
) -> None:
    found = judged([stream(taken, most, discard)])
    assert found.mark == mark
    assert bool(found.remedy) == (mark == "warning")
