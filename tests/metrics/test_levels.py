"""Gauges are read from the bus and the store on demand."""

from pathlib import Path
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest

from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.bus.health import observe_bus
from agent_service.core.waiting import Status
from agent_service.metrics import AgentMetrics
from agent_service.run.journal import Run
from agent_service.serving import observe_agent
from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.telemetry.metrics import Instruments
from schemas import subjects
from tests.kit.fakes import FakeClock
from tests.kit.runs import accepted
from tests.metrics.readings import readings

MIB = 1 << 20


async def read(instruments: Instruments) -> dict[str, float]:
    await instruments.exposed("")
    return readings(instruments)


async def put(link: NatsLink, subject: str, *, times: int = 1, body: bytes = b"{}") -> None:
    for number in range(times):
        await link.publish(subject, body, msg_id=f"{subject}-{number}", headers={})


async def test_what_nobody_has_taken_waits_at_its_consumer_and_fills_its_stream(bus: NatsLink) -> None:
    instruments = Instruments()
    observe_bus(instruments, bus)
    await put(bus, subjects.TOOL_RESULT, body=b"x" * (MIB // 2))
    await put(bus, subjects.tool_request("fetch"), times=2)
    seen = await read(instruments)
    assert seen['agentic_consumer_pending{agentic_consumer="loop"}'] == 1
    assert seen['agentic_consumer_pending{agentic_consumer="tools"}'] == 2
    assert 'agentic_consumer_pending{agentic_consumer="control"}' not in seen
    size = seen['agentic_stream_size_bytes{agentic_stream="AGENTIC_RESULTS"}']
    assert seen['agentic_stream_messages{agentic_stream="AGENTIC_RESULTS"}'] == 1
    assert MIB // 2 < size < MIB
    assert seen['agentic_stream_fill_ratio{agentic_stream="AGENTIC_RESULTS"}'] == pytest.approx(size / (3 << 27))


async def test_a_dead_letter_counts_until_somebody_has_settled_it(bus: NatsLink) -> None:
    await put(bus, subjects.DEAD_LETTERS_LOOP, times=2)
    await put(bus, subjects.DEAD_LETTERS_OUTBOUND)
    await put(bus, subjects.REJECTED, times=3)  # tells of the letters, and is none
    await NatsDeadLetters(bus).drop(1, "somebody")  # which also deletes it
    await put(bus, subjects.DEAD_LETTERS_LOOP)
    instruments = Instruments()
    observe_bus(instruments, bus)
    assert (await read(instruments))["agentic_dead_letters"] == 3


async def test_a_bus_without_streams_shows_none_and_one_that_is_away_nothing_at_all(
    link: NatsLink, nats_server: EmbeddedNats
) -> None:
    instruments = Instruments()
    observe_bus(instruments, link)
    assert await read(instruments) == {}
    nats_server.kill()
    others = Instruments()
    observe_bus(others, link)
    assert await read(others) == {}
    await nats_server.start()


async def test_runs_that_have_not_ended_are_shown_with_how_long_the_oldest_waits_and_what_waits_for_a_person() -> None:
    clock, first = FakeClock(), accepted()
    agent = MagicMock(metrics=AgentMetrics("scripted"), clock=clock, store=AsyncMock())
    agent.store.counts.return_value = dict.fromkeys(Status, 0) | {Status.QUEUED: 1, Status.PAUSED: 2, Status.DONE: 500}
    agent.store.queued.return_value = [first.state.run_id]
    agent.store.load.return_value = Run(state=first.state, head=first.entry.hash)
    agent.store.count_for_people.return_value = 4
    agent.turns.outbox.pending, agent.ground.folder = {"a", "b", "c"}, Path()
    agent.limits.spending, agent.kill_switch.stopped_by = Mock(spent_usd=1.5, usd_per_day=None), ""
    clock.advance((first.entry.at - clock.now()).total_seconds() + 90)
    seen = await read(observe_agent(agent))
    assert seen.pop("agentic_store_free_bytes") > MIB
    assert seen == {
        'agentic_run_active{agentic_run_state="queued"}': 1,
        'agentic_run_active{agentic_run_state="paused"}': 2,
        "agentic_outbox_runs": 3,
        "agentic_run_queue_age_seconds": 90,
        "agentic_inbox_runs": 4,
        "agentic_spent_today": 1.5,
    }
