"""Messages of the bus are measured by their subject, and what is delivered again is counted as done again."""

from contextlib import suppress

import pytest

from agent_service.metrics.wakes import IncomingMetrics
from groundwork.service.errors import TryAgain
from groundwork.telemetry.metrics import Instruments
from schemas import subjects
from tests.metrics.readings import readings

HANDLED = "messaging_process_duration_seconds_count"


def handled(error: Exception | None = None) -> dict[str, float]:
    """What is measured of a message over which this is raised."""
    instruments = Instruments()
    with suppress(Exception), IncomingMetrics(instruments).message(subjects.TOOL_RESULT):
        if error:
            raise error
    return {series: value for series, value in readings(instruments).items() if "_sum" not in series}


def test_a_message_is_measured_by_its_subject() -> None:
    assert handled() == {f'{HANDLED}{{messaging_destination_name="agentic.tool_result"}}': 1}


@pytest.mark.parametrize(("error", "kind"), [(TryAgain("later"), "try_again"), (RuntimeError(), "internal")])
def test_a_message_that_is_delivered_again_is_a_turn_that_is_done_again(error: Exception, kind: str) -> None:
    assert handled(error) == {
        f'{HANDLED}{{error_type="{kind}",messaging_destination_name="agentic.tool_result"}}': 1,
        f'agentic_retries_total{{agentic_retry_scope="turn",error_type="{kind}"}}': 1,
    }
