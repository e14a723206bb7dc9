"""Which run a name means: a whole id, the beginning of one, or `last`."""

import pytest

from agent_service.cli.errors import Exit, NotDone
from agent_service.cli.naming import Candidate, bound, meant

IDS = tuple(f"run_01M808{'0' * 18}{ending}" for ending in ("C2", "C1", "B1", "A1"))
NEWEST = [Candidate(run_id, "done", f"goal of {run_id[-2:]}") for run_id in IDS]


@pytest.mark.parametrize("name", [IDS[3][:-1], IDS[3][4:-1], IDS[3][4:-1].lower(), IDS[3]])
def test_the_beginning_of_one_id_means_it_with_or_without_the_prefix(name: str) -> None:
    assert meant(name, [NEWEST[3]]) == IDS[3]


@pytest.mark.parametrize("name", ["run_01M808", "01M808", "0", IDS[0][:-1]])
def test_the_bound_is_after_every_run_that_may_be_meant(name: str) -> None:
    assert str(bound(name)) > IDS[0]


def test_an_ambiguous_beginning_names_the_runs_and_means_none() -> None:
    with pytest.raises(NotDone) as refused:
        meant("01M808", NEWEST)
    assert refused.value.exit_code == Exit.USAGE
    assert refused.value.facts["code"] == "ambiguous_run"
    for run in NEWEST:
        assert f"{run.run_id}  done       {run.goal}" in str(refused.value)


@pytest.mark.parametrize(("name", "newest"), [("last", []), ("01M809", NEWEST)])
def test_a_name_of_no_run_is_not_found(name: str, newest: list[Candidate]) -> None:
    with pytest.raises(NotDone) as refused:
        meant(name, newest)
    assert (refused.value.exit_code, refused.value.facts["code"]) == (Exit.NOT_FOUND, "unknown_run")
