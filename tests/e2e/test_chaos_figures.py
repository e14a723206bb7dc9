"""`make chaos-figures` in small: one kill of each."""

from tests.e2e.chaos_figures import VICTIMS, figures


async def test_a_kill_of_each_loses_no_run_and_repeats_no_write_and_is_over_long_before_ack_wait() -> None:
    found = await figures([2], VICTIMS, kills=1, seed=1)
    (cell,) = found["figures"]
    assert found["kills"] == len(VICTIMS)
    assert (cell["runs_lost"], cell["runs_not_done"], cell["tools_run_twice"]) == (0, 0, 0)
    assert max(told["resume_s"]["max"] for told in cell["victims"].values()) < 15.0
