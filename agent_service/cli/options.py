"""Options and arguments that several commands share, and how a group of commands is shown."""

import math
import os
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_service.cli.complaints import NotDone
from agent_service.cli.naming import is_whole
from agent_service.telling.plain import one_line, rfc3339
from groundwork.service import installed

NAME = "agentic"
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
        raise typer.BadParameter(f"a run is named by its id, such as {AN_ID}, the beginning of it, or `last`")
    return text


def _whole(text: str | None) -> str | None:
    if text is not None and not is_whole(text):
        raise typer.BadParameter(f"it is the whole id of a run, such as {AN_ID}")
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
    """Of the newest runs those that can be meant, with their goals, for a shell; none where no agent answers."""
    from agent_service.cli.client import AgentClient

    with suppress(NotDone), AgentClient(os.environ.get("AGENTIC_URL", URL), os.environ.get("AGENTIC_TOKEN")) as agent:
        found = [(run["run_id"], one_line(run["goal"], 60)) for run in agent.get("/v1/runs", limit=50)["runs"]]
        return [run for run in (*found, ("last", "the newest")) if run[0].startswith(beginning)]
    return []


Run = Annotated[
    str,
    typer.Argument(
        help="The run's id, the beginning of it, or `last`.",
        callback=named,
        metavar="RUN",
        autocompletion=_runs_there_are,
    ),
]


def _instant(text: str | None) -> str | None:
    """An instant as it was given, or that of so long ago."""
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
        help="The run's id, the beginning of it, or `last`; without it all runs.",
        callback=named,
        metavar="RUN",
        autocompletion=_runs_there_are,
    ),
]
Cursor = Annotated[
    str | None,
    typer.Option(help="Go on after this run: `next_cursor` of --json.", callback=_whole, metavar="RUN"),
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

MaxSteps = Annotated[int | None, typer.Option(min=1, help="The most tool steps.", rich_help_panel=_LIMITS)]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="The most tokens of its model calls.", rich_help_panel=_LIMITS)
]


def _finite(value: float | None) -> float | None:
    """`nan` and `inf` are numbers to Python, and none in JSON."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("must be a number")
    return value


MaxCost = Annotated[
    float | None,
    typer.Option(
        "--max-cost-usd",
        help="The most that its model calls may cost, in USD.",
        rich_help_panel=_LIMITS,
        callback=_finite,
    ),
]
MaxReframes = Annotated[
    int | None, typer.Option(min=0, help="How often it may frame its goal anew.", rich_help_panel=_LIMITS)
]
Deadline = Annotated[
    str | None,
    typer.Option(help="When it must have ended, such as 2026-12-24T18:00:00Z.", rich_help_panel=_LIMITS, metavar="AT"),
]


_WHAT = "What is decided"
Step = Annotated[int | None, typer.Option(min=1, help="The step that it is about.", rich_help_panel=_WHAT, metavar="N")]
ArgumentsHash = Annotated[
    str | None,
    typer.Option("--hash", help="Of the arguments, as it was asked under.", rich_help_panel=_WHAT, metavar="HASH"),
]
Reason = Annotated[str | None, typer.Option(help="Why; the run is told.", metavar="TEXT")]


def invocation() -> str:
    """How the command can be called from here, for examples to copy."""
    return installed.invocation(NAME, "agent_service")


def given(**values: Any) -> dict[str, Any]:
    """What of these was given, as the body of a request."""
    return {name: value for name, value in values.items() if value is not None}


def limits_of(
    max_steps: int | None,
    max_tokens: int | None,
    max_cost_usd: float | None,
    max_reframes: int | None,
    deadline_at: str | None,
) -> dict[str, Any] | None:
    """What a run may spend, as requests have it; None where nothing was said of it."""
    limits = given(
        max_steps=max_steps,
        max_tokens=max_tokens,
        max_cost_usd=max_cost_usd,
        max_reframes=max_reframes,
        deadline_at=deadline_at,
    )
    return limits or None
