"""Resolves the name of a run: its id, any part of the id that no other run has, or `last` for the newest."""

import re
from collections.abc import Sequence

from agent_service.history.text import one_line
from groundwork.service.errors import Exit, NotDone

LAST = "last"
MOST_CANDIDATES = 6
"""Runs to look up for a name: one more than an ambiguous name lists."""

_RUN_ID = re.compile("run_[0-9A-HJKMNP-TV-Z]{26}")


def is_run_id(name: str) -> bool:
    return _RUN_ID.fullmatch(name) is not None


def id_part(name: str) -> str:
    """Text to search run ids for; empty for the newest run."""
    return "" if name == LAST else name.upper().replace("RUN_", "run_")


def resolve(name: str, newest: Sequence[tuple[str, str, str]]) -> str:
    """Id of the one run that `name` means. `newest`: id, status and goal of the newest with that part in their ids.
    Raises NotDone for none, and for several.
    """
    if not newest:
        text = "there is no run yet" if name == LAST else f"no run has {one_line(name, 60)} in its id"
        raise NotDone(f"{text}: `agentic runs` lists them", Exit.NOT_FOUND, {"code": "unknown_run"})
    if len(newest) == 1 or name == LAST:
        return newest[0][0]
    listed = newest[: MOST_CANDIDATES - 1]
    named = [f"  {run_id}  {status:<9}  {one_line(goal, 60)}" for run_id, status, goal in listed]
    more = ["  and others"] if len(newest) == MOST_CANDIDATES else []
    text = "\n".join((f"several runs have {name} in their id; which one is meant?", *named, *more))
    raise NotDone(text, Exit.USAGE, {"code": "ambiguous_run"})
