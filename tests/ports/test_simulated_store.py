"""The algorithm of the shared store, held by seeds: what goes wrong on the way changes nothing that counts."""

import pytest

from tests.ports.simulation import wrong_with
from tests.ports.store_mutants import MUTANTS

SEEDS, AT_ONCE = 1000, 250
TO_FIND_A_BUG = 1500


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
async def test_nothing_is_lost_and_nothing_is_done_twice_whatever_goes_wrong_on_the_way(first: int) -> None:
    assert await wrong_with(range(first, first + AT_ONCE)) == ""


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_store_that_is_wrong_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    monkeypatch.setattr(mutant.where, mutant.name, mutant.wrong)
    assert await wrong_with(range(TO_FIND_A_BUG)) != ""
