"""Instruments are rendered as Prometheus text under OpenTelemetry's names."""

from pathlib import Path

import pytest

from groundwork.service.errors import TryAgain
from groundwork.telemetry.metrics import MOST_SERIES, Instruments


async def read(instruments: Instruments) -> list[str]:
    """The lines that Prometheus reads of them, without comments, and without what the process itself takes."""
    text = (await instruments.exposed("")).decode()
    return [line for line in text.splitlines() if not line.startswith(("#", "process_", "target_"))]


async def test_a_counter_ends_in_total_and_a_histogram_counts_a_value_in_every_bucket_that_holds_it() -> None:
    instruments = Instruments()
    instruments.counter("agentic.results.stale", "Results that nobody waits for", unit="{result}")
    took = instruments.histogram("agentic.wake.duration", "Until it was durable", bounds=(0.1, 1.0))
    for seconds in (0.1, 0.5, 7.0):
        took.record(seconds)
    assert await read(instruments) == [
        "agentic_results_stale_total 0.0",
        'agentic_wake_duration_seconds_bucket{le="0.1"} 1.0',
        'agentic_wake_duration_seconds_bucket{le="1.0"} 2.0',
        'agentic_wake_duration_seconds_bucket{le="+Inf"} 3.0',
        "agentic_wake_duration_seconds_count 3.0",
        "agentic_wake_duration_seconds_sum 7.6",
    ]


async def test_no_attribute_breaks_out_of_its_label_and_those_beyond_the_most_series_are_other() -> None:
    instruments = Instruments()
    calls = instruments.counter("calls", "Calls", "tool")
    calls.add('x"} 1\nevil 2')
    assert await read(instruments) == [r'calls_total{tool="x\"} 1\nevil 2"} 1.0']
    for number in range(MOST_SERIES + 49):
        calls.add(f"tool-{number}")
    lines = await read(instruments)
    assert len(lines) == MOST_SERIES + 1
    assert lines[-1] == 'calls_total{tool="other"} 50.0'


@pytest.mark.parametrize("error", [TryAgain("the store is locked"), ValueError("a row that is none")])
async def test_what_cannot_be_observed_any_more_is_not_shown_as_it_was(error: Exception) -> None:
    instruments = Instruments()
    depth = instruments.gauge("depth", "Runs that wait")
    depth.show({(): 7})

    async def look() -> None:
        raise error

    instruments.observe(look, depth)
    assert await read(instruments) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells what a process takes")
async def test_it_is_said_what_is_measured_and_what_the_process_takes() -> None:
    text = (await Instruments().exposed("agentic-loop")).decode()
    assert 'target_info{service_name="agentic-loop",' in text
    assert "process_resident_memory_bytes" in text
