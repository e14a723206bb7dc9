"""The agent that commands ask, through `agentic_client`. What goes wrong is a NotDone."""

import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from agent_service.cli import output
from agent_service.cli.whereabouts import address_of
from agent_service.history.plain import one_line
from agentic_client.clients import AsyncClient, Client
from agentic_client.errors import AgenticError, Broken, Unreachable
from groundwork.service.address import without_login
from groundwork.service.exits import Exit, NotDone
from groundwork.service.invisible import visible
from schemas.values import dataclass

AWAY_AT_MOST_S = 300.0
PASSING = (Exit.UNREACHABLE, Exit.TRY_AGAIN)
"""The exit codes of an agent that is away, or starts."""
LAST = "last"
LOOKED_AT = 6
"""Runs; one more than are named where several fit."""

Json = dict[str, Any]
T = TypeVar("T")
_WHOLE = re.compile("run_[0-9A-HJKMNP-TV-Z]{26}")


class Agent(Client):
    """The agent at `url`, or that of the configuration where it is empty; closed on leaving. Only what is asked after
    `be_patient` is asked again while the agent is away."""

    def __init__(self, url: str, token: str | None) -> None:
        found = address_of(url)
        told = f"{without_login(found.url)}, {found.whence}"
        try:
            super().__init__(
                found.url, token=token, allow_http_nonloopback=not url, patience_s=0.0, notice=_notice, told=told
            )
        except AgenticError as error:
            raise _not_done(error) from error

    def wait_for(self, call: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        try:
            return super().wait_for(call)
        except AgenticError as error:
            raise _not_done(error) from error

    def be_patient(self) -> None:
        self._client.patience_s = AWAY_AT_MOST_S

    def named(self, name: str) -> str:
        """The id of the run that `name` means. Raises NotDone for none, and for several."""
        if is_whole(name):
            return name
        page = self.ask("list_runs", query={"limit": LOOKED_AT, "run": part(name)})
        return meant(name, [Candidate(run["run_id"], run["status"], run["goal"]) for run in page["runs"]])


def _notice(error: AgenticError | None) -> None:
    output.complain(f"waiting for the agent: {visible(str(error))}" if error else "the agent is back")


_EXITS = {404: Exit.NOT_FOUND, 410: Exit.NOT_FOUND, **dict.fromkeys((429, 502, 503, 504), Exit.TRY_AGAIN)}


def _not_done(error: AgenticError) -> NotDone:
    facts = {"code": error.code, "run_id": error.run_id, "field": error.field}
    message = f"{error} (give it with --token or AGENTIC_TOKEN)" if error.status in (401, 403) else str(error)
    is_no_agent = (isinstance(error, Unreachable) and not error.status) or (
        isinstance(error, Broken) and not error.code
    )
    code = _EXITS.get(error.status, Exit.REFUSED if error.status else Exit.USAGE)
    told = {name: value for name, value in facts.items() if value}
    return NotDone(message, Exit.UNREACHABLE if is_no_agent else code, told)


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
