"""Rates of an evaluation, checked against published figures."""

import pytest

from agent_service.workbench.evaluation.results import Rates, Result


def runs(*counts: tuple[int, int], cost_usd: float | None = 0.5) -> list[Result]:
    """One result list from pairs of passed and failed runs per scenario."""
    fields = {"title": "One", "group": "work", "tokens": 100, "seconds": 2.0, "cost_usd": cost_usd}
    return [
        Result.model_validate({"scenario": f"work-{place}", "name": f"work-{place}", "unmet": unmet, **fields})
        for place, (passed, failed) in enumerate(counts)
        for unmet in [()] * passed + [("a reason",)] * failed
    ]


def rounded(*values: float) -> tuple[float, ...]:
    return tuple(round(value, 4) for value in values)


def test_a_rate_has_wilsons_interval_and_a_difference_that_of_newcombe() -> None:
    """Newcombe 1998, Statistics in Medicine 17:873-890, table II, method 10, of 56 in 70 and 48 in 80."""
    later, before = Rates.of(runs((56, 14))), Rates.of(runs((48, 32)))
    assert rounded(later.rate, later.low, later.high) == (0.8, 0.6918, 0.877)
    more, interval = later.since(before)
    assert rounded(more, *interval) == (0.2, 0.0524, 0.3339)
    assert [rounded(one.low, one.high) for one in (Rates.of(runs((0, 10))), Rates.of(runs((10, 0))))] == [
        (0.0, 0.2775),
        (0.7225, 1.0),
    ]


def test_pass_k_is_the_chance_that_k_runs_of_one_scenario_all_pass() -> None:
    """With three of five runs passing, 3 of the 10 pairs pass; k is the number of runs that every scenario has."""
    assert Rates.of(runs((3, 2), (2, 0))).pass_k == pytest.approx((3 / 10 + 1) / 2)
    assert Rates.of(runs((4, 1), (5, 0), (0, 5))).pass_k == pytest.approx(1 / 3)


def test_what_failed_is_paid_by_what_passed() -> None:
    rates = Rates.of(runs((1, 3)))
    assert (rates.tokens, rates.seconds, rates.cost_usd) == (400, 8.0, 2.0)
    assert (Rates.of(runs((0, 3))).tokens, Rates.of(runs((2, 0), cost_usd=None)).cost_usd) == (None, None)
