"""The commands on runs: clients of a running agent's HTTP API, wherever it is."""

import json
import os
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType

from agent_service.cli import output, show
from agent_service.cli.client import AgentClient, Json, run_path
from agent_service.cli.complaints import NotDone
from agent_service.cli.exits import OF_STATUS, Exit
from agent_service.cli.options import (
    URL,
    AsJson,
    Deadline,
    MaxCost,
    MaxReframes,
    MaxSteps,
    MaxTokens,
    RunId,
    Token,
    Url,
    examples,
)
from agent_service.cli.watching import Silent, leaving, to_the_end, watching

PANEL = "Runs, by the API of an agent"
PAGE = 500

commands = typer.Typer()

Goal = Annotated[str, typer.Argument(help="What is to be reached.", metavar="GOAL")]
WakeId = Annotated[
    str | None, typer.Option(help="Your name for this request: asking again gives the same run.", metavar="TEXT")
]
Context = Annotated[str | None, typer.Option(help="What else the run should know, as a JSON object.", metavar="JSON")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show the run live until it ends.")]
State = Literal["queued", "running", "paused", "done", "escalated", "failed", "cancelled"]
Kind = Literal["message", "resume", "raise_budget", "approve", "reject"]


@commands.command(rich_help_panel=PANEL, epilog=examples("agentic run --watch 'show me how this works'"))
def run(
    goal: Goal,
    watch: Watch = False,
    max_steps: MaxSteps = None,
    max_tokens: MaxTokens = None,
    max_cost_usd: MaxCost = None,
    max_reframes: MaxReframes = None,
    deadline: Deadline = None,
    context: Context = None,
    wake_id: WakeId = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Ask for a run and wait for its end. The exit code says how it ended.

    0 done, 1 failed, 3 escalated or paused for a person, 4 cancelled. Ctrl-C leaves; the run goes on.
    """
    limits = _limits(max_steps, max_tokens, max_cost_usd, max_reframes, deadline)
    with AgentClient(url, token) as agent:
        accepted = _wake(agent, goal, limits, context, wake_id)
        if not as_json:
            output.complain(f"accepted: {show.fit(accepted['run_id'])}")
        _to_the_end(agent, accepted["run_id"], watch=watch, as_json=as_json)


@commands.command(
    rich_help_panel=PANEL,
    epilog=examples(
        "agentic wake 'fetch web https://example.com and produce a 2 para critique'",
        "agentic wake --wake-id ticket-4711 --max-steps 5 --context '{\"tone\": \"warm\"}' 'answer the ticket'",
    ),
)
def wake(
    goal: Goal,
    max_steps: MaxSteps = None,
    max_tokens: MaxTokens = None,
    max_cost_usd: MaxCost = None,
    max_reframes: MaxReframes = None,
    deadline: Deadline = None,
    context: Context = None,
    wake_id: WakeId = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Ask for a run and print its id. Accepted is not completed: `agentic tail` and `agentic show` tell more."""
    limits = _limits(max_steps, max_tokens, max_cost_usd, max_reframes, deadline)
    with AgentClient(url, token) as agent:
        answer = _wake(agent, goal, limits, context, wake_id)
    _print(answer, as_json, lambda a: show.fit(a["run_id"]))


@commands.command(rich_help_panel=PANEL, epilog=examples("agentic runs --state running", "agentic runs --json | jq"))
def runs(
    state: Annotated[State | None, typer.Option(help="Only runs in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many.")] = 20,
    cursor: Annotated[
        str | None, typer.Option(help="Go on after this run: `next_cursor` of --json.", metavar="RUN")
    ] = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """List runs, newest first."""
    with AgentClient(url, token) as agent:
        page = agent.get("/v1/runs", state=state, limit=limit, cursor=cursor)
    _print(page, as_json, lambda p: show.runs(p["runs"], width=output.console().width) if p["runs"] else "no runs")


@commands.command(
    "show",
    rich_help_panel=PANEL,
    epilog=examples("agentic show RUN", "agentic show --watch RUN", "agentic show --json RUN"),
)
def show_run(run_id: RunId, watch: Watch = False, as_json: AsJson = False, url: Url = URL, token: Token = None) -> None:
    """Show where one run stands. With --watch the exit code says how it ended, as of `agentic run`."""
    with AgentClient(url, token) as agent:
        if watch:
            _to_the_end(agent, run_id, watch=True, as_json=as_json)
        _print(agent.run(run_id), as_json, show.run)


@commands.command(
    rich_help_panel=PANEL, epilog=examples("agentic tail RUN", "agentic tail --json --after 12 RUN | jq .kind")
)
def tail(
    run_id: RunId,
    after: Annotated[int, typer.Option(min=0, help="Begin after this entry.")] = 0,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Print the entries of a run as they come, one a line, until it ends."""
    with leaving(run_id), AgentClient(url, token) as agent:
        for entry in agent.follow(run_id, after):
            _print_entry(entry, as_json)


@commands.command(
    rich_help_panel=PANEL, epilog=examples("agentic entries RUN", "agentic entries --json RUN > journal.jsonl")
)
def entries(
    run_id: RunId,
    after: Annotated[int, typer.Option(min=0, help="Begin after this entry.")] = 0,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Print the journal of a run as it is now, one entry a line."""
    next_after: int | None = after
    with AgentClient(url, token) as agent:
        while next_after is not None:
            page = agent.get(run_path(run_id, "entries"), after=next_after, limit=PAGE)
            for entry in page["entries"]:
                _print_entry(entry, as_json)
            next_after = page["next_after"]


@commands.command(rich_help_panel=PANEL, epilog=examples("agentic cancel --reason 'no longer needed' RUN"))
def cancel(
    run_id: RunId,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept with the run.", metavar="TEXT")] = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Cancel a run. What is under way is recorded when it comes, and changes nothing."""
    with AgentClient(url, token) as agent:
        answer = agent.post(run_path(run_id, "cancel"), _given(reason=reason))
    _print(answer, as_json, lambda _: f"{run_id} is cancelled")


@commands.command(
    rich_help_panel=PANEL,
    epilog=examples(
        "agentic signal --message 'the second source is wrong' RUN message",
        "agentic signal --max-steps 15 RUN raise_budget",
        "agentic signal RUN resume",
    ),
)
def signal(
    run_id: RunId,
    kind: Annotated[Kind, typer.Argument(help="What kind of signal.")],
    message: Annotated[str | None, typer.Option(help="What the run is told.", metavar="TEXT")] = None,
    max_steps: MaxSteps = None,
    max_tokens: MaxTokens = None,
    max_cost_usd: MaxCost = None,
    max_reframes: MaxReframes = None,
    deadline: Deadline = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Tell a run something, resume it, raise its budget, approve or reject."""
    limits = _limits(max_steps, max_tokens, max_cost_usd, max_reframes, deadline)
    body = _given(kind=kind, message=message, constraints=limits or None)
    with AgentClient(url, token) as agent:
        answer = agent.post(run_path(run_id, "signals"), body)
    _print(answer, as_json, lambda a: f"{run_id} has heard it; it is {show.fit(a['state'])}")


def _wake(agent: AgentClient, goal: str, limits: Json, context: str | None, wake_id: str | None) -> Json:
    wake_id = wake_id or f"cli-{os.urandom(8).hex()}"
    body = _given(goal=goal, wake_id=wake_id, constraints=limits or None, context=_context(context))
    try:
        return agent.post("/v1/wake", body)
    except NotDone as error:
        if error.exit_code not in (Exit.UNREACHABLE, Exit.TRY_AGAIN):
            raise
        message = f"{error}. To ask again without asking twice, add --wake-id {wake_id}"
        raise NotDone(message, error.exit_code, error.facts) from error


def _to_the_end(agent: AgentClient, run_id: str, *, watch: bool, as_json: bool) -> None:
    """Wait, print the run, and exit as it ended."""
    with leaving(run_id):
        if watch and not as_json:
            with watching(lambda: agent.run(run_id), output.console(stderr=True)) as watcher:
                followed = to_the_end(agent, run_id, watcher)
        else:
            followed = to_the_end(agent, run_id, Silent())
    _print(followed.view, as_json, lambda view: show.run(view, followed.took))
    raise typer.Exit(OF_STATUS.get(followed.view["state"], Exit.FAILED))


def _context(text: str | None) -> Json | None:
    try:
        found = json.loads(text) if text is not None else None
    except ValueError:
        found = text
    if not isinstance(found, dict | None):
        raise NotDone('--context takes a JSON object, such as \'{"tone": "warm"}\'', Exit.USAGE)
    return found


def _limits(
    max_steps: int | None,
    max_tokens: int | None,
    max_cost_usd: float | None,
    max_reframes: int | None,
    deadline_at: str | None,
) -> Json:
    return _given(
        max_steps=max_steps,
        max_tokens=max_tokens,
        max_cost_usd=max_cost_usd,
        max_reframes=max_reframes,
        deadline_at=deadline_at,
    )


def _given(**values: Any) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def _print_entry(entry: Json, as_json: bool) -> None:
    if as_json:
        output.document(entry)
    else:
        output.draw(show.entry(entry), wrap=False)


def _print(value: Json, as_json: bool, drawn: Callable[[Json], RenderableType]) -> None:
    if as_json:
        output.document(value)
    else:
        output.draw(drawn(value))
