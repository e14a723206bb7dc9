"""The agent for commands: its address (--url, AGENTIC_URL, or the configuration nearby), its client, and the exit codes
of its errors.

A token is sent to the address, so a file can only name one of this machine.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from agent_service.cli import output
from agent_service.history.text import MOST_CANDIDATES, id_part, is_run_id, resolve
from agentic_client.clients import Client
from agentic_client.errors import AgenticError, Broken, Unreachable
from groundwork.service.config_file import DEV_FILE, FILE, file_section, interpolated, nearby
from groundwork.service.errors import Exit, Misconfigured, NotDone
from groundwork.service.invisible import visible
from groundwork.service.secret import is_loopback, without_login
from schemas.operations import BY_NAME

MAX_RETRY_S = 300.0
NAME_IT = "correct it, or give the agent's address with --url"

Json = dict[str, Any]


def reader_config(named: Path | None) -> Path | None:
    """Returns the file for commands that read. It may be that of `agentic dev`, which comes first if ./agentic.yaml
    names no bus."""
    return nearby(named, *((FILE, DEV_FILE) if _names_a_bus(FILE) else (DEV_FILE, FILE)))


def _names_a_bus(path: Path) -> bool:
    if any(name.startswith("AGENT_NATS__") for name in os.environ) or not os.path.lexists(path):
        return True
    try:
        return "nats" in file_section(path) or "nats" in file_section(path, "agent")
    except Misconfigured:
        return True


def agent_address(given: str) -> tuple[str, str]:
    """URL of the agent, and the place that names it. `given` is --url or AGENTIC_URL; empty without both. Raises
    Misconfigured for settings that name no agent here: a command must not reach another one instead."""
    if given:
        return given, "as AGENTIC_URL says" if given == os.environ.get("AGENTIC_URL") else "as --url says"
    path = None
    with suppress(PermissionError):  # another user's folder
        path = reader_config(None)
    try:
        http = interpolated(file_section(path, "agent", "http"), os.environ)
    except Misconfigured as error:
        raise Misconfigured(f"{error}\n  or give the agent's address with --url") from error
    variables = {name: os.environ.get(f"AGENT_HTTP__{name.upper()}") for name in ("host", "port")}
    http |= {name: value for name, value in variables.items() if value is not None}
    host, port, place = url_host(str(http.get("host", "127.0.0.1"))), str(http.get("port", 8700)), path or "environment"
    if not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise Misconfigured(f"{place}: agent.http.port is no port: {NAME_IT}")
    if not is_loopback(host.strip("[]")):
        raise Misconfigured(f"{place}: agent.http.host is no address of this machine: {NAME_IT}")
    is_given = not http.keys().isdisjoint(variables)
    return f"http://{host}:{int(port)}", f"as agent.http of {place} says" if is_given else "the default"


class AgentClient(Client):
    """Client of the agent at `url`; an empty `url` stands for the agent of the configuration. Calls fail at once while
    the agent is away, until `retry_while_away` is called. `run_name`: the command line's name of the run that a command
    is about."""

    def __init__(self, url: str, token: str | None, *, run_name: str = "", as_json: bool = False) -> None:
        self.run_name, self.as_json = run_name, as_json
        address, source = agent_address(url)
        super().__init__(
            address,
            token=token,
            allow_http_nonloopback=not url,
            patience_s=0.0,
            notice=_report_absence,
            display_name=f"{without_login(address)}, {source}",
        )

    def retry_while_away(self) -> None:
        self._client.patience_s = MAX_RETRY_S

    @cached_property
    def run_id(self) -> str:
        """Id of the run, which is named by its id, a unique part of it, or `last`. Resolved once the command line is
        known to be valid. Raises NotDone for no run and for several."""
        if is_run_id(self.run_name):
            return self.run_name
        page = self.ask("list_runs", query={"limit": MOST_CANDIDATES, "run": id_part(self.run_name)})
        return resolve(self.run_name, [(run["run_id"], run["status"], run["goal"]) for run in page["runs"]])

    def call(
        self, operation: str, body: Json | None = None, path: Mapping[str, str] | None = None, **query: Any
    ) -> Json:
        """Calls an operation, about the run where its path has one."""
        run = {"run_id": self.run_id} if "{run_id}" in BY_NAME[operation].path else {}
        return self.ask(operation, {**run, **(path or {})}, body, query)


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


def url_host(host: str) -> str:
    """Host for the URL of a server that listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 # compared with, not listened on
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
