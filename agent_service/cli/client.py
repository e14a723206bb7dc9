"""The agent that commands ask, through `agentic_client`. What goes wrong is a NotDone."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from agent_service.cli import output
from agent_service.cli.whereabouts import address_of
from agent_service.history.run_names import MOST_CANDIDATES, Candidate, id_part, is_run_id, resolve
from agentic_client.clients import AsyncClient, Client
from agentic_client.errors import AgenticError, Broken, Unreachable
from groundwork.service.errors import Exit, NotDone
from groundwork.service.invisible import visible
from groundwork.service.secret import without_login

AWAY_AT_MOST_S = 300.0
PASSING = (Exit.UNREACHABLE, Exit.TRY_AGAIN)
"""The exit codes of an agent that is away, or starts."""

Json = dict[str, Any]
T = TypeVar("T")


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
        if is_run_id(name):
            return name
        page = self.ask("list_runs", query={"limit": MOST_CANDIDATES, "run": id_part(name)})
        return resolve(name, [Candidate(run["run_id"], run["status"], run["goal"]) for run in page["runs"]])


def _notice(error: AgenticError | None) -> None:
    why = "it does not answer" if isinstance(error, Unreachable) else visible(str(error))
    output.complain(f"waiting for the agent: {why}" if error else "the agent is back")


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
