"""Options and arguments that several commands share, and how a group of commands is shown."""

import math
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import RenderableType

from agent_service.cli import output
from agent_service.cli.client import AgentClient, run_path
from agent_service.history.plain import one_line, rfc3339
from groundwork.service import installed
from groundwork.service.exits import NotDone
from schemas.values import dataclass

NAME = "agentic"
T = TypeVar("T")
URL = ""
"""Not said: it is that of the configuration (whereabouts.py)."""
AN_ID = "run_01M808MS3MJ9K8CQKG3J135SFS"

_NAME = re.compile(r"(run_)?[0-9A-Za-z]{1,26}")
_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGENT = "Which agent"
_LIMITS = "What the run may spend"


def named(text: str | None) -> str | None:
    """A name of a run. Raises BadParameter for what can be none."""
    if text is not None and not _NAME.fullmatch(text):
        raise typer.BadParameter(f"a run is named by its id, such as {AN_ID}, a part of it, or `last`")
    return text


Url = Annotated[
    str,
    typer.Option(
        envvar="AGENTIC_URL",
        help="The address of its HTTP API. Without it that of the configuration here, else http://127.0.0.1:8700.",
        rich_help_panel=_AGENT,
        metavar="URL",
        show_default=False,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="AGENTIC_TOKEN",
        help="Bearer token, if it asks for one; over plain http to another machine only with "
        "AGENTIC_ALLOW_HTTP_NONLOOPBACK=true.",
        rich_help_panel=_AGENT,
        metavar="TEXT",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs; errors too, on standard error.")]


def _runs_there_are(beginning: str) -> list[tuple[str, str]]:
    """For shell completion; none where no agent answers."""
    with suppress(NotDone), AgentClient(os.environ.get("AGENTIC_URL", URL), os.environ.get("AGENTIC_TOKEN")) as agent:
        found = [(run["run_id"], one_line(run["goal"], 60)) for run in agent.get("/v1/runs", limit=50)["runs"]]
        return [run for run in (*found, ("last", "the newest")) if beginning in run[0]]
    return []


Run = Annotated[
    str,
    typer.Argument(
        help="The run's id, a part that no other has, or `last`.",
        callback=named,
        metavar="RUN",
        autocompletion=_runs_there_are,
    ),
]


def _instant(text: str | None) -> str | None:
    ago = _AGO.fullmatch(text or "")
    if text is None or ago is None:
        return text
    return rfc3339(datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])}))


Since = Annotated[
    str | None,
    typer.Option(
        help="Only runs accepted since then: so long ago (30m, 2h, 7d), or an instant such as 2026-12-24T18:00:00Z.",
        callback=_instant,
        metavar="WHEN",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(help="Only runs accepted before then, told as in --since.", callback=_instant, metavar="WHEN"),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show the run live until it ends.")]
RunOrAll = Annotated[
    str | None,
    typer.Argument(
        help="The run's id, a part that no other has, or `last`; without it all runs.",
        callback=named,
        metavar="RUN",
        autocompletion=_runs_there_are,
    ),
]
Cursor = Annotated[
    str | None,
    typer.Option(help="Go on after this run: `next_cursor` of --json.", metavar="RUN"),
]
Config = Annotated[
    Path | None,
    typer.Option(help="The configuration file. Without it: ./agentic.yaml, if there is one.", metavar="FILE"),
]
ConfigNearby = Annotated[
    Path | None,
    typer.Option(
        help="The configuration file. Without it: ./agentic.yaml or else ./.agentic/agentic.yaml, which is that of "
        "`agentic dev`; without any of them the defaults and the environment.",
        metavar="FILE",
    ),
]


def _finite(value: float | None) -> float | None:
    """`nan` and `inf` are numbers to Python, and none in JSON."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("must be a number")
    return value


def _limit(kind: Any, help_: str, *names: str, **more: Any) -> Any:
    return Annotated[kind | None, typer.Option(*names, help=help_, rich_help_panel=_LIMITS, **more)]


LIMITS = {
    "max_steps": _limit(int, "The most tool steps.", min=1),
    "max_tokens": _limit(int, "The most tokens of its model calls.", min=1),
    "max_cost_usd": _limit(float, "The most that its model calls may cost, in USD.", callback=_finite),
    "max_reframes": _limit(int, "How often it may frame its goal anew.", min=0),
    "deadline_at": _limit(str, "When it must have ended, such as 2026-12-24T18:00:00Z.", "--deadline", metavar="AT"),
}
"""What a run may spend, by the names of requests."""
Limits = dict[str, Any] | None
"""Stands in a command for all of LIMITS."""


_WHAT = "What is decided"
Step = Annotated[int | None, typer.Option(min=1, help="The step that it is about.", rich_help_panel=_WHAT, metavar="N")]
ArgumentsHash = Annotated[
    str | None,
    typer.Option("--hash", help="Of the arguments, as it was asked under.", rich_help_panel=_WHAT, metavar="HASH"),
]
Reason = Annotated[str | None, typer.Option(help="Why; whoever asks is told.", metavar="TEXT")]


def invocation() -> str:
    """How the command can be called from here, for examples to copy."""
    return installed.invocation(NAME, "agent_service")


def given(**values: Any) -> dict[str, Any]:
    """The values that are not None, as the body of a request."""
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Asking:
    """A command that asks a running agent; `name` is that of the run it is about, empty for none."""

    agent: AgentClient
    name: str
    as_json: bool

    @cached_property
    def run_id(self) -> str:
        """Asked for once the command line is known to be right. Raises NotDone for no run, and for several."""
        return self.agent.named(self.name)

    def path(self, *parts: str) -> str:
        return run_path(self.run_id, *parts)

    def tell(self, answer: Any, text: str) -> None:
        output.tell(answer, text, as_json=self.as_json)

    def show(self, answer: T, drawn: Callable[[T], RenderableType]) -> None:
        output.show(answer, drawn, as_json=self.as_json)


def of_agent(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first argument is Asking, and which has the options that say which agent, and --json."""
    return _asking(command, [])


def of_run(command: Callable[..., None]) -> Callable[..., None]:
    return _asking(command, [_option("run", Run, Parameter.empty)])


def _asking(command: Callable[..., None], first: list[Parameter]) -> Callable[..., None]:
    own = list(signature(command).parameters.values())[1:]
    if any(one.name == "limits" for one in own):
        command = in_place_of("limits", LIMITS)(command)
        own = list(signature(command).parameters.values())[1:]
    listed = [*first, *own, _option("as_json", AsJson, False), _option("url", Url, URL), _option("token", Token)]

    def called(*, url: str, token: str | None, as_json: bool, **values: Any) -> None:
        with AgentClient(url, token) as agent:
            command(Asking(agent, values.pop("run") if first else "", as_json), **values)

    return _as(command, called, listed)


def in_place_of(name: str, options: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with these options (annotations by name) where it has the parameter `name`, which gets those that are
    given, or None."""

    def changed(command: Callable[..., None]) -> Callable[..., None]:
        listed = list[Parameter]()
        for one in signature(command).parameters.values():
            listed += [_option(*option) for option in options.items()] if one.name == name else [one]

        def called(*first: Any, **values: Any) -> None:
            named = given(**{option: values.pop(option, None) for option in options})
            command(*first, **{name: named or None}, **values)

        return _as(command, called, listed)

    return changed


def _as(command: Callable[..., None], called: Callable[..., None], listed: list[Parameter]) -> Callable[..., None]:
    made = wraps(command)(called)
    listed = [one.replace(kind=Parameter.KEYWORD_ONLY) if one.name != "asking" else one for one in listed]
    vars(made).update(__signature__=Signature(listed), __annotations__={one.name: one.annotation for one in listed})
    return made


def _option(name: str, annotation: Any, default: Any = None) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
