"""Which run is meant: by its id or any part of it that no other has, or by `last`, the newest."""

import re
from collections.abc import Sequence

from agent_service.history.plain import one_line
from groundwork.service.errors import Exit, NotDone
from schemas.values import dataclass

LAST = "last"
LOOKED_AT = 6
"""Runs; one more than are named where several fit."""

_WHOLE = re.compile("run_[0-9A-HJKMNP-TV-Z]{26}")


@dataclass(frozen=True, slots=True)
class Candidate:
    run_id: str
    status: str
    goal: str


def is_whole(name: str) -> bool:
    return _WHOLE.fullmatch(name) is not None


def part(name: str) -> str:
    """The part of its id that a run is looked for by; empty for the newest."""
    return "" if name == LAST else name.upper().replace("RUN_", "run_")


def meant(name: str, newest: Sequence[Candidate]) -> str:
    """The id that `name` means, of the LOOKED_AT newest with that part. Raises NotDone for none, and for several."""
    if not newest:
        text = "there is no run yet" if name == LAST else f"no run has {one_line(name, 60)} in its id"
        raise NotDone(f"{text}: `agentic runs` lists them", Exit.NOT_FOUND, {"code": "unknown_run"})
    if len(newest) == 1 or name == LAST:
        return newest[0].run_id
    named = [f"  {run.run_id}  {run.status:<9}  {one_line(run.goal, 60)}" for run in newest[: LOOKED_AT - 1]]
    more = ["  and others"] if len(newest) == LOOKED_AT else []
    text = "\n".join((f"several runs have {name} in their id; which one is meant?", *named, *more))
    raise NotDone(text, Exit.USAGE, {"code": "ambiguous_run"})
