"""Headers carry correlation, trace context and CloudEvents, the same on every try."""

import re

from schemas import envelope

TRACE = "019fd172e8fc4f45f0cc4a10596068a9"


def of_event(dedupe_key: str = "agentic:run:r:completed") -> dict[str, str]:
    return envelope.of_event(
        "agent.completed",
        dedupe_key=dedupe_key,
        source="agentic-loop",
        at="2026-11-21T12:00:00Z",
        run_id="r",
        trace_id=TRACE,
    )


def test_the_trace_context_is_that_of_w3c_and_of_the_run() -> None:
    assert re.fullmatch(f"00-{TRACE}-(?!0{{16}})[0-9a-f]{{16}}-01", of_event()["traceparent"])


def test_two_messages_of_a_run_are_two_spans_of_one_trace() -> None:
    first, second = of_event()["traceparent"], of_event("agentic:run:r:accepted")["traceparent"]
    assert first != second
    assert first.split("-")[1] == second.split("-")[1]


def test_the_cloud_event_is_named_by_its_dedupe_key_type_and_source() -> None:
    cloud = {name: value for name, value in of_event().items() if name.startswith("ce-")}
    assert cloud == {
        "ce-specversion": "1.0",
        "ce-id": "agentic:run:r:completed",
        "ce-type": "agent.completed",
        "ce-source": "agentic-loop",
        "ce-time": "2026-11-21T12:00:00Z",
    }
