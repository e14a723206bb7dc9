"""A step that asks for a hundred things starves nobody: `crowd_figures` in a bound that holds on a busy machine."""

import pytest

from tests.e2e.crowd_figures import figures


@pytest.mark.alone
async def test_a_single_step_beside_a_hundred_tasks_waits_for_the_calls_in_flight_and_for_no_more() -> None:
    found = await figures(100)
    assert found["beside_s"]["runs"] >= 5
    assert found["beside_s"]["p50"] < 3 * found["alone_s"]["p50"]
    assert found["beside_s"]["max"] < found["crowd_s"] / 3
