"""`agentic_client` for commands, and the exit codes of its errors."""

from typing import Any

from agent_service.cli import output
from agent_service.cli.locate import agent_address
from agent_service.history.run_names import MOST_CANDIDATES, id_part, is_run_id, resolve
from agentic_client.clients import Client
from agentic_client.errors import AgenticError, Broken, Unreachable
from groundwork.service.errors import Exit, NotDone
from groundwork.service.invisible import visible
from groundwork.service.secret import without_login

MAX_RETRY_S = 300.0

Json = dict[str, Any]


class AgentClient(Client):
    """Client of the agent at `url`; an empty `url` stands for the agent of the configuration. Calls fail at once while
    the agent is away, until `retry_while_away` is called."""

    def __init__(self, url: str, token: str | None) -> None:
        found = agent_address(url)
        super().__init__(
            found.url,
            token=token,
            allow_http_nonloopback=not url,
            patience_s=0.0,
            notice=_report_absence,
            display_name=f"{without_login(found.url)}, {found.source}",
        )

    def retry_while_away(self) -> None:
        self._client.patience_s = MAX_RETRY_S

    def resolve_run(self, name: str) -> str:
        """Returns the run id for an id, a unique part of one, or `last`. Raises NotDone for none and for several."""
        if is_run_id(name):
            return name
        page = self.ask("list_runs", query={"limit": MOST_CANDIDATES, "run": id_part(name)})
        return resolve(name, [(run["run_id"], run["status"], run["goal"]) for run in page["runs"]])


def _report_absence(error: AgenticError | None) -> None:
    why = "it does not answer" if isinstance(error, Unreachable) else visible(str(error))
    output.print_error(f"waiting for the agent: {why}" if error else "the agent is back")


_EXITS = {404: Exit.NOT_FOUND, 410: Exit.NOT_FOUND, **dict.fromkeys((429, 502, 503, 504), Exit.TRY_AGAIN)}


def not_done(error: AgenticError) -> NotDone:
    facts = {name: value for name in ("code", "run_id", "field") if (value := getattr(error, name))}
    message = f"{error} (give it with --token or AGENTIC_TOKEN)" if error.status in (401, 403) else str(error)
    if error.run_id and error.run_id not in message:
        message = f"{error.run_id}: {message}"
    is_no_agent = (isinstance(error, Unreachable) and not error.status) or (
        isinstance(error, Broken) and not error.code
    )
    code = _EXITS.get(error.status, Exit.REFUSED if error.status else Exit.USAGE)
    return NotDone(message, Exit.UNREACHABLE if is_no_agent else code, facts)
