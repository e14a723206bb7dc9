"""Options and arguments that several commands share, and what makes a command of a function.

A function returns the Outcome that it tells, or a coroutine that does, or None where it has told all.
"""

import math
import os
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property, wraps
from inspect import Parameter, Signature, signature
from typing import Any

import typer

from agent_service.cli import output
from agent_service.cli.client import Agent, Json
from agent_service.history.text import one_line, rfc3339
from groundwork.service import program
from groundwork.service.commands import examples
from groundwork.service.errors import NotDone
from schemas.operations import BY_NAME
from schemas.values import dataclass

NAME = "agentic"
AN_ID = "run_01M808MS3MJ9K8CQKG3J135SFS"

_NAME = re.compile(r"(run_)?[0-9A-Za-z]{1,26}")
_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

Function = Callable[..., Any]
Group = Mapping[str, tuple[Any, Any]]


def option(help_: str, *names: str, default: Any = None, **more: Any) -> Any:
    """The default of a parameter that is an option."""
    return typer.Option(default, *names, help=help_, **more)


def flag(help_: str, *names: str) -> Any:
    """The same of one that is on or off."""
    return option(help_, *names, default=False)


def argument(help_: str, metavar: str, *, default: Any = ..., **more: Any) -> Any:
    """The same of an argument."""
    return typer.Argument(default, help=help_, metavar=metavar, **more)


def named(text: str | None) -> str | None:
    """A name of a run. Raises BadParameter for what can be none."""
    if text is not None and not _NAME.fullmatch(text):
        raise typer.BadParameter(f"a run is named by its id, such as {AN_ID}, a part of it, or `last`")
    return text


def _runs_there_are(beginning: str) -> list[tuple[str, str]]:
    """For shell completion; none where no agent answers."""
    with suppress(NotDone), Agent(os.environ.get("AGENTIC_URL", ""), None) as agent:
        runs = agent.ask("list_runs", query={"limit": 50})["runs"]
        found = [(run["run_id"], one_line(run["goal"], 60)) for run in runs]
        return [run for run in (*found, ("last", "the newest")) if beginning in run[0]]
    return []


def _instant(text: str | None) -> str | None:
    if ago := _AGO.fullmatch(text or ""):
        return rfc3339(datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])}))
    try:
        datetime.fromisoformat(text or rfc3339(datetime.now(UTC)))
    except ValueError as error:
        raise typer.BadParameter("must be an age (30m, 2h, 7d), or an instant such as 2026-12-24T18:00:00Z") from error
    return text


def _finite(value: float | None) -> float | None:
    """`nan` and `inf` are numbers to Python, and none in JSON."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("must be a number")
    return value


_WHICH: dict[str, Any] = {"callback": named, "autocompletion": _runs_there_are}
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
SINCE = option(
    "Only runs accepted since: an age (30m, 2h, 7d), or an instant such as 2026-12-24T18:00:00Z.",
    callback=_instant,
    metavar="WHEN",
)
UNTIL = option("Only runs accepted before, as in --since.", callback=_instant, metavar="WHEN")
WATCH = flag("Show the run live until it ends.", "--watch", "-w")
CONFIG = option("The configuration file. Without it: ./agentic.yaml, if there is one.", metavar="FILE")
CONFIG_NEARBY = option(
    "The configuration file. Without it: ./agentic.yaml or else ./.agentic/agentic.yaml, which is that of "
    "`agentic dev`; without any of them the defaults and the environment.",
    metavar="FILE",
)
DRY_RUN = flag("Change nothing; only say what would change.", "--dry-run")
REASON = option("The reason, for the record.", metavar="TEXT")
Given = dict[str, Any] | None
"""Of a parameter that stands for a group of options, by its name: those that are given."""
_LIMITS: Group = {
    "max_steps": (int, option("Limit on tool steps.", min=1, **_SPENDS)),
    "max_tokens": (int, option("Limit on tokens of its model calls.", min=1, **_SPENDS)),
    "max_cost_usd": (float, option("Limit on the cost of its model calls, in USD.", callback=_finite, **_SPENDS)),
    "max_reframes": (int, option("Limit on new framings of its goal.", min=0, **_SPENDS)),
    "deadline_at": (
        str,
        option("Its deadline, such as 2026-12-24T18:00:00Z.", "--deadline", metavar="AT", **_SPENDS),
    ),
}
_ORDER: Group = {
    "context": (str, option("Background for the run, as a JSON object.", metavar="JSON")),
    "wake_id": (str, option("Your name for this request: repeating it gives the same run.", metavar="TEXT")),
    "untrusted": (bool, option("Goal or context hold untrusted text: the run asks before it writes.", "--untrusted")),
}
_DECIDED = {"rich_help_panel": "What is decided"}
_RULING: Group = {
    "step": (int, option("The number of the step.", min=1, metavar="N", **_DECIDED)),
    "arguments_hash": (str, option("The hash of the arguments that you read.", "--hash", metavar="HASH", **_DECIDED)),
    "reason": (str, REASON),
}
GROUPS: Mapping[str, Group] = {"limits": _LIMITS, "order": _ORDER, "ruling": _RULING}
"""By the names of requests."""


def invocation() -> str:
    """How the command can be called from here, for examples to copy."""
    return program.invocation(NAME, "agent_service")


def given(**values: Any) -> dict[str, Any]:
    """The values that are not None, as the body or query of a request."""
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Asking:
    """A command that asks an agent; `name` is that of the run it is about, empty for none."""

    agent: Agent
    name: str
    as_json: bool

    @cached_property
    def run_id(self) -> str:
        """Asked for once the command line is known to be right. Raises NotDone for no run, and for several."""
        return self.agent.named(self.name)

    def ask(
        self, operation: str, body: Json | None = None, path: Mapping[str, str] | None = None, **query: Any
    ) -> Json:
        of_run = {"run_id": self.run_id} if "{run_id}" in BY_NAME[operation].path else {}
        return self.agent.ask(operation, {**of_run, **(path or {})}, body, given(**query))


def of_agent(commands: typer.Typer, *shown: str) -> Callable[[Function], Function]:
    """A command that is given an Asking. It has --json, and the options that say which agent."""
    return _asking(commands, shown, [])


def of_run(commands: typer.Typer, *shown: str) -> Callable[[Function], Function]:
    """The same, with the name of a run as its first argument."""
    return _asking(commands, shown, [_parameter("run", str, RUN)])


def _asking(commands: typer.Typer, shown: Sequence[str], first: list[Parameter]) -> Callable[[Function], Function]:
    def made(function: Function) -> Function:
        def call(*, url: str, token: str | None, as_json: bool, **values: Any) -> None:
            with Agent(url, token) as agent:
                told = function(Asking(agent, values.pop("run") if first else "", as_json), **values)
                if told is not None:
                    output.end(told, as_json=as_json)

        _, *own = signature(function).parameters.values()
        which = [_parameter("url", str, URL), _parameter("token", str | None, TOKEN)]
        return _registered(commands, shown, function, call, [*first, *own, _AS_JSON, *which], GROUPS)

    return made


def of_files(
    commands: typer.Typer, *shown: str, name: str | None = None, **spread: Group
) -> Callable[[Function], Function]:
    """A command with --json. A parameter that is named in `spread` stands for those options, as `limits` does."""

    def made(function: Function) -> Function:
        def call(*, as_json: bool, **values: Any) -> None:
            told = function(**values)
            output.end(output.awaited(told) if isinstance(told, Coroutine) else told, as_json=as_json)

        own = list(signature(function).parameters.values())
        return _registered(commands, shown, function, call, [*own, _AS_JSON], spread, name)

    return made


def _registered(
    commands: typer.Typer,
    shown: Sequence[str],
    function: Function,
    call: Function,
    parameters: Sequence[Parameter],
    spread: Mapping[str, Group],
    name: str | None = None,
) -> Function:
    groups = {one.name: spread[one.name] for one in parameters if one.name in spread}
    listed = list[Parameter]()
    for one in parameters:
        options = groups.get(one.name)
        listed += (
            [_parameter(each, kind | None, default) for each, (kind, default) in options.items()]
            if options
            else [one.replace(kind=Parameter.KEYWORD_ONLY)]
        )

    @wraps(function)
    def called(**values: Any) -> None:
        together = {
            name: given(**{each: values.pop(each) for each in options}) or None for name, options in groups.items()
        }
        call(**values, **together)

    annotations = {one.name: one.annotation for one in listed}
    vars(called).update(__signature__=Signature(listed), __annotations__=annotations)
    return commands.command(name, epilog=examples(*shown))(called)


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


_AS_JSON = _parameter("as_json", bool, AS_JSON)
