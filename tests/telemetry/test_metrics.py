"""Instruments: what is counted is read as Prometheus text, by OpenTelemetry's names."""

import asyncio
from pathlib import Path

import pytest

from groundwork.service.errors import TryAgain
from groundwork.telemetry.exposition import exposed
from groundwork.telemetry.metrics import MOST_SERIES, Instruments


async def read(instruments: Instruments) -> list[str]:
    """The lines that Prometheus reads of them, without comments, and without what the process itself takes."""
    text = exposed(await instruments.read(), {}).decode()
    return [line for line in text.splitlines() if not line.startswith(("#", "process_", "target_"))]


async def test_a_counter_ends_in_total_and_one_without_attributes_is_zero_from_the_start() -> None:
    instruments = Instruments()
    instruments.counter("agentic.results.stale", "Results that nobody waits for", unit="{result}")
    assert await read(instruments) == ["agentic_results_stale_total 0.0"]


async def test_attributes_that_are_known_are_zero_from_the_start() -> None:
    instruments = Instruments()
    ended = instruments.counter("runs", "Runs", attributes=("agentic.run.state",), known=[("done",), ("failed",)])
    ended.add("done")
    assert await read(instruments) == [
        'runs_total{agentic_run_state="done"} 1.0',
        'runs_total{agentic_run_state="failed"} 0.0',
    ]


async def test_a_histogram_counts_a_value_in_every_bucket_that_holds_it() -> None:
    instruments = Instruments()
    took = instruments.histogram("agentic.wake.duration", "Until it was durable", bounds=(0.1, 1.0))
    for seconds in (0.1, 0.5, 7.0):
        took.record(seconds)
    assert await read(instruments) == [
        'agentic_wake_duration_seconds_bucket{le="0.1"} 1.0',
        'agentic_wake_duration_seconds_bucket{le="1.0"} 2.0',
        'agentic_wake_duration_seconds_bucket{le="+Inf"} 3.0',
        "agentic_wake_duration_seconds_count 3.0",
        "agentic_wake_duration_seconds_sum 7.6",
    ]


async def test_units_are_spelled_out_and_never_twice() -> None:
    instruments = Instruments()
    for name, unit in (("stream.size", "By"), ("stream.fill", "1"), ("queue.age.seconds", "s"), ("runs", "{run}")):
        instruments.gauge(name, "Something", unit=unit).show({(): 1})
    names = [line.split()[0] for line in await read(instruments)]
    assert names == ["stream_size_bytes", "stream_fill_ratio", "queue_age_seconds", "runs"]


async def test_a_hostile_attribute_cannot_break_out_of_its_label() -> None:
    instruments = Instruments()
    instruments.counter("calls", "Calls", attributes=("tool",)).add('x"} 1\nevil 2')
    assert await read(instruments) == [r'calls_total{tool="x\"} 1\nevil 2"} 1.0']


async def test_attributes_beyond_the_most_series_are_counted_as_other() -> None:
    instruments = Instruments()
    calls = instruments.counter("calls", "Calls", attributes=("tool",))
    for number in range(MOST_SERIES + 50):
        calls.add(f"tool-{number}")
    lines = await read(instruments)
    assert len(lines) == MOST_SERIES + 1
    assert lines[-1] == 'calls_total{tool="other"} 50.0'


async def test_readers_at_the_same_time_cause_one_observation() -> None:
    instruments, asked = Instruments(), 0
    depth = instruments.gauge("depth", "Runs that wait")

    async def look() -> None:
        nonlocal asked
        asked += 1
        depth.show({(): asked})

    instruments.observe(look, depth)
    await asyncio.gather(*(instruments.read() for _ in range(20)))
    assert await read(instruments) == ["depth 1.0"]


@pytest.mark.parametrize("error", [TryAgain("the store is locked"), ValueError("a row that is none")])
async def test_what_cannot_be_observed_any_more_is_not_shown_as_it_was(error: Exception) -> None:
    instruments = Instruments()
    depth = instruments.gauge("depth", "Runs that wait")
    depth.show({(): 7})

    async def look() -> None:
        raise error

    instruments.observe(look, depth)
    assert await read(instruments) == []


def test_a_name_means_one_instrument() -> None:
    instruments = Instruments()
    instruments.counter("calls", "Calls")
    with pytest.raises(ValueError, match="an instrument calls already"):
        instruments.gauge("calls", "Calls")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells what a process takes")
async def test_it_is_said_what_is_measured_and_what_the_process_takes() -> None:
    text = exposed(await Instruments().read(), {"service.name": "agentic-loop"}).decode()
    assert 'target_info{service_name="agentic-loop"} 1.0' in text
    assert "process_resident_memory_bytes" in text
