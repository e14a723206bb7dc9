"""Shared options and arguments, and the decorators that turn a function into a command.

A function returns an Output, a coroutine that returns one, or None if it has printed everything itself.
"""

import os
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Any

import typer

from agent_service.cli import output
from agent_service.cli.client import AgentClient, not_done
from agent_service.history.text import one_line, rfc3339
from agentic_client.errors import AgenticError
from groundwork.service import program
from groundwork.service.commands import argument, examples, flag, option
from groundwork.service.errors import Misconfigured

NAME = "agentic"
EXAMPLE_RUN_ID = "run_01M808MS3MJ9K8CQKG3J135SFS"

_NAME = re.compile(r"(run_)?[0-9A-Za-z]{1,26}")
_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

Function = Callable[..., Any]
Group = Mapping[str, tuple[Any, Any]]


def run_name(text: str | None) -> str | None:
    """Raises BadParameter for text that cannot name a run."""
    if text is not None and not _NAME.fullmatch(text):
        raise typer.BadParameter(f"a run is named by its id, such as {EXAMPLE_RUN_ID}, a part of it, or `last`")
    return text


def _complete_run(beginning: str) -> list[tuple[str, str]]:
    """Shell completion; empty if no agent answers."""
    with suppress(AgenticError, Misconfigured), AgentClient(os.environ.get("AGENTIC_URL", ""), None) as agent:
        runs = agent.ask("list_runs", query={"limit": 50})["runs"]
        found = [(run["run_id"], one_line(run["goal"], 60)) for run in runs]
        return [run for run in (*found, ("last", "the newest")) if beginning in run[0]]
    return []


def _instant(text: str | None) -> str | None:
    if text is None:
        return None
    with suppress(ValueError, OverflowError):
        if ago := _AGO.fullmatch(text):
            return rfc3339(datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])}))
        if datetime.fromisoformat(text).tzinfo:
            return text
    raise typer.BadParameter("must be an age (30m, 2h, 7d), or an instant such as 2026-12-24T18:00:00Z")


_WHICH: dict[str, Any] = {"callback": run_name, "autocompletion": _complete_run}
_SPENDS = {"rich_help_panel": "What the run may spend"}
_AGENT = {"rich_help_panel": "Which agent"}

URL = option(
    "Address of the HTTP API; by default that of the configuration here, else http://127.0.0.1:8700.",
    default="",
    envvar="AGENTIC_URL",
    metavar="URL",
    show_default=False,
    **_AGENT,
)
TOKEN = option(
    "Bearer token, if it asks for one; over plain http to another machine only with "
    "AGENTIC_ALLOW_HTTP_NONLOOPBACK=true.",
    envvar="AGENTIC_TOKEN",
    metavar="TEXT",
    **_AGENT,
)
AS_JSON = flag("Print JSON for programs; errors too, on standard error.", "--json")
RUN = argument("The run's id, a unique part of it, or `last`.", "RUN", **_WHICH)
RUN_OR_ALL = argument("The run; without it all runs.", "RUN", default=None, **_WHICH)
WATCH = flag("Show the run live until it ends.", "--watch", "-w")
CONFIG = option("The configuration file. Without it: ./agentic.yaml, if there is one.", metavar="FILE")
CONFIG_NEARBY = option(
    "The configuration file. Without it: ./agentic.yaml or else ./.agentic/agentic.yaml, which is that of "
    "`agentic dev`; without any of them the defaults and the environment.",
    metavar="FILE",
)
DRY_RUN = flag("Change nothing; only say what would change.", "--dry-run")
REASON = option("The reason, for the record.", metavar="TEXT")
Values = dict[str, Any]
"""Options of a group that were given, by name."""
NONE: Values = {}
"""Stands for them in the signature of a command."""
_DECIDED = {"rich_help_panel": "What is decided"}
_STEP: Group = {"step": (int, option("The number of the step.", min=1, metavar="N", **_DECIDED))}
_HASH = option("The hash of what you read.", "--hash", metavar="HASH", **_DECIDED)
Status = StrEnum("Status", ["QUEUED", "RUNNING", "PAUSED", "DONE", "ESCALATED", "FAILED", "CANCELLED"])
GROUPS: Mapping[str, Group] = {
    "limits": {
        "max_steps": (int, option("Limit on tool steps.", min=1, **_SPENDS)),
        "max_tokens": (int, option("Limit on tokens of its model calls.", min=1, **_SPENDS)),
        "max_cost_usd": (float, option("Limit on the cost of its model calls, in USD.", **_SPENDS)),
        "max_reframes": (int, option("Limit on new framings of its goal.", min=0, **_SPENDS)),
        "deadline_at": (
            str,
            option("Its deadline, such as 2026-12-24T18:00:00Z.", "--deadline", metavar="AT", **_SPENDS),
        ),
    },
    "order": {
        "context": (str, option("Background for the run, as a JSON object.", metavar="JSON")),
        "wake_id": (str, option("Your name for this request: repeating it gives the same run.", metavar="TEXT")),
        "untrusted": (
            bool,
            option("Goal or context hold untrusted text: the run asks before it writes.", "--untrusted"),
        ),
    },
    "asked": {**_STEP, "question_hash": (str, _HASH)},
    "ruling": {**_STEP, "arguments_hash": (str, _HASH), "reason": (str, REASON)},
    "filters": {
        "status": (list[Status], option("Only runs of this status; may be repeated.")),
        "text": (str, option("Only runs with this in goal, summary or id.", metavar="TEXT")),
        "tool": (str, option("Only runs that used this tool.", metavar="NAME")),
        "since": (
            str,
            option(
                "Only runs accepted since: an age (30m, 2h, 7d), or an instant such as 2026-12-24T18:00:00Z.",
                callback=_instant,
                metavar="WHEN",
            ),
        ),
        "until": (str, option("Only runs accepted before, as in --since.", callback=_instant, metavar="WHEN")),
        "wake_id": (str, option("Only the run with this wake id.", metavar="ID")),
        "caller": (str, option("Only runs of this caller, such as `token ci`.", metavar="WHO")),
    },
}
"""Groups by the name of the parameter that stands for them."""


def invocation() -> str:
    """Returns the way to call the command from here, for examples to copy."""
    return program.invocation(NAME, "agent_service")


def agent_command(commands: typer.Typer, *usages: str, of_run: bool = False) -> Callable[[Function], Function]:
    """Registers a command that gets an AgentClient. It has --json and the options that choose the agent. `of_run`: its
    first argument names a run."""

    def made(function: Function) -> Function:
        def call(*, url: str, token: str | None, as_json: bool, **values: Any) -> None:
            try:
                named = values.pop("run") if of_run else ""
                with AgentClient(url, token, run_name=named, as_json=as_json) as agent:
                    if (result := function(agent, **values)) is not None:
                        output.finish(result, as_json=as_json)
            except AgenticError as error:
                raise not_done(error) from error

        _, *own = signature(function).parameters.values()
        first = [_parameter("run", str, RUN)] if of_run else []
        which = [_parameter("url", str, URL), _parameter("token", str | None, TOKEN)]
        return _register(commands, usages, function, call, [*first, *own, _AS_JSON, *which], GROUPS)

    return made


run_command = partial(agent_command, of_run=True)


def local_command(
    commands: typer.Typer, *usages: str, name: str | None = None, **spread: Group
) -> Callable[[Function], Function]:
    """Registers a command with --json. A parameter named in `spread` is replaced by the options of that group."""

    def made(function: Function) -> Function:
        def call(*, as_json: bool, **values: Any) -> None:
            result = function(**values)
            output.finish(output.run_async(result) if isinstance(result, Coroutine) else result, as_json=as_json)

        own = list(signature(function).parameters.values())
        return _register(commands, usages, function, call, [*own, _AS_JSON], spread, name)

    return made


def _register(
    commands: typer.Typer,
    usages: Sequence[str],
    function: Function,
    call: Function,
    parameters: Sequence[Parameter],
    groups: Mapping[str, Group],
    name: str | None = None,
) -> Function:
    here = {one.name: groups[one.name] for one in parameters if one.name in groups}
    listed = list[Parameter]()
    for one in parameters:
        if options := here.get(one.name):
            listed += [_parameter(each, kind | None, default) for each, (kind, default) in options.items()]
        else:
            listed.append(one.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(function)
    def called(**values: Any) -> None:
        for name, options in here.items():
            given = {each: values.pop(each) for each in options}
            values[name] = {each: value for each, value in given.items() if value is not None}
        call(**values)

    annotations = {one.name: one.annotation for one in listed}
    vars(called).update(__signature__=Signature(listed), __annotations__=annotations)
    return commands.command(name, epilog=examples(*usages))(called)


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


_AS_JSON = _parameter("as_json", bool, AS_JSON)
