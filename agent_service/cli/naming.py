"""Which run is meant: by its whole id, by the beginning of one (with or without `run_`), or by `last`, the newest."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent_service.cli.errors import Exit, NotDone
from agent_service.history.plain import one_line

LAST = "last"
LOOKED_AT = 6
"""Runs; one more than are named where several fit."""

_PREFIX = "run_"
_LENGTH = len(_PREFIX) + 26
_WHOLE = re.compile(_PREFIX + "[0-9A-HJKMNP-TV-Z]{26}")
_BEGINNING = re.compile(_PREFIX + "([0-7][0-9A-HJKMNP-TV-Z]{0,25})?")
_LAST_DIGIT = "Z"


@dataclass(frozen=True, slots=True)
class Candidate:
    run_id: str
    state: str
    goal: str


def is_whole(name: str) -> bool:
    return _WHOLE.fullmatch(name) is not None


def bound(name: str) -> str | None:
    """An upper bound of the ids that may be meant; None: no bound. Raises NotDone where no run's id can begin so."""
    if name == LAST:
        return None
    if not _BEGINNING.fullmatch(_beginning(name)):
        raise _none_begins_with(name)
    return _beginning(name).ljust(_LENGTH, _LAST_DIGIT)


def meant(name: str, newest: Sequence[Candidate]) -> str:
    """The id that `name` means, of the LOOKED_AT newest before its bound. Raises NotDone for none, and for several."""
    fitting = [run for run in newest if name == LAST or run.run_id.startswith(_beginning(name))]
    if not fitting:
        raise _no_run("there is no run yet") if name == LAST else _none_begins_with(name)
    same = [run for run in fitting if run.run_id == _beginning(name)]
    if len(fitting) > 1 and not same and name != LAST:
        raise NotDone(_several(name, fitting), Exit.USAGE, {"code": "ambiguous_run"})
    return (same or fitting)[0].run_id


def _none_begins_with(name: str) -> NotDone:
    return _no_run(f"no run begins with {one_line(name, 60)}: `agentic runs` lists them")


def _no_run(text: str) -> NotDone:
    return NotDone(text, Exit.NOT_FOUND, {"code": "unknown_run"})


def _beginning(name: str) -> str:
    return _PREFIX + name.removeprefix(_PREFIX).upper()


def _several(name: str, fitting: Sequence[Candidate]) -> str:
    named = [f"  {run.run_id}  {run.state:<9}  {one_line(run.goal, 60)}" for run in fitting[: LOOKED_AT - 1]]
    more = ["  and others"] if len(fitting) == LOOKED_AT else []
    return "\n".join((f"several runs begin with {name}; which one is meant?", *named, *more))
