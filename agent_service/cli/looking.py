"""The commands that look at runs: clients of a running agent's HTTP API, wherever it is."""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from agent_service.cli import help_wanted, in_full, lists, output, show
from agent_service.cli.client import AgentClient, Json, agent_and_run, run_path
from agent_service.cli.complaints import NotDone
from agent_service.cli.exits import Exit
from agent_service.cli.options import URL, AsJson, Cursor, Run, RunOrAll, Since, Token, Until, Url, Watch
from agent_service.cli.watching import ToldOnce, leaving, leaving_all, show_to_the_end, tell_to_the_end
from groundwork.service.commands import examples

PAGE = 15
"""Entries, which have up to a mebibyte each."""
LOOKS, LOOK_AGAIN_S = 8, 0.25

commands = typer.Typer()

Status = StrEnum("Status", ["QUEUED", "RUNNING", "PAUSED", "DONE", "ESCALATED", "FAILED", "CANCELLED"])


@commands.command(
    epilog=examples(
        "agentic runs --status running --status paused",
        "agentic runs --since 2h --tool fetch --text invoice",
        "agentic runs --json | jq",
    ),
)
def runs(
    status: Annotated[
        list[Status] | None, typer.Option("--status", "--state", help="Only runs that stand so; may be repeated.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Only runs with this in goal, summary or id.", metavar="TEXT")
    ] = None,
    tool: Annotated[str | None, typer.Option(help="Only runs that use this tool.", metavar="NAME")] = None,
    since: Since = None,
    until: Until = None,
    wake_id: Annotated[
        str | None, typer.Option(help="Only the run that was asked for by this name.", metavar="ID")
    ] = None,
    caller: Annotated[
        str | None, typer.Option(help="Only runs that they asked for, such as `token ci`.", metavar="WHO")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many.")] = 20,
    cursor: Cursor = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """List runs, newest first."""
    with AgentClient(url, token) as agent:
        asked = {"status": status, "text": text, "tool": tool, "since": since, "until": until, "wake_id": wake_id}
        page = agent.get("/v1/runs", **asked, caller=caller, limit=limit, cursor=cursor)
    output.show(page, lambda p: lists.runs(p, width=output.console().width), as_json=as_json)


@commands.command(
    "show",
    epilog=examples(
        "agentic show RUN", "agentic show --watch last", "agentic show RUN --step 2", "agentic show --json RUN"
    ),
)
def show_run(
    run: Run,
    watch: Watch = False,
    step: Annotated[int | None, typer.Option(min=1, help="Show this step in full instead.", metavar="N")] = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Show where one run stands.

    With --watch the exit code says how it ended, as of `agentic run`.
    """
    with agent_and_run(url, token, run) as (agent, run_id):
        if step is not None:
            detail = agent.get(run_path(run_id, "steps", str(step)))
            output.tell(detail, in_full.step(detail), as_json=as_json)
            return
        view = agent.run(run_id)
        if watch:
            raise typer.Exit(show_to_the_end(agent, run_id, watch=True, as_json=as_json))
        output.show(view, lambda view: show.run(view, agent.timeline(run_id)), as_json=as_json)


@commands.command(epilog=examples("agentic prompt last", "agentic prompt RUN --call 3 | less"))
def prompt(
    run: Run,
    call: Annotated[
        int | None, typer.Option(min=1, help="Which model call; without it the newest.", metavar="N")
    ] = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Print one model call of a run in full: prompt, reply, and what came of it."""
    with agent_and_run(url, token, run) as (agent, run_id):
        view = agent.get(run_path(run_id, "calls", str(call or _newest_call(agent, run_id))))
    output.tell(view, in_full.call(view), as_json=as_json)


def _newest_call(agent: AgentClient, run_id: str) -> int:
    calls = [item["call"] for item in agent.timeline(run_id)["items"] if item["call"]]
    if not calls:
        raise NotDone(f"{run_id} has asked no model yet", Exit.NOT_FOUND, {"code": "unknown_call"})
    return int(max(calls))


@commands.command(epilog=examples("agentic inbox", "agentic inbox --json | jq"))
def inbox(
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, the newest.")] = 20,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """List what waits for a person: paused and escalated runs, and dead letters."""
    with AgentClient(url, token) as agent:
        output.show(agent.get("/v1/inbox", limit=limit), help_wanted.inbox, as_json=as_json)


@commands.command(epilog=examples("agentic why RUN", "agentic why last"))
def why(run: Run, as_json: AsJson = False, url: Url = URL, token: Token = None) -> None:
    """Say what a run waits for, since and until when, and what to do."""
    tell_why(run, as_json=as_json, url=url, token=token)


def tell_why(run: str, *, as_json: bool, url: str, token: str | None, config: Path | None = None) -> None:
    """Print why a run waits, or stopped."""
    with agent_and_run(url, token, run, config) as (agent, run_id):
        output.show(agent.get(run_path(run_id, "why")), help_wanted.why, as_json=as_json)


@commands.command(
    epilog=examples("agentic tail last", "agentic tail", "agentic tail --json --after 12 RUN | jq .kind"),
)
def tail(
    run: RunOrAll = None,
    after: Annotated[int, typer.Option(min=0, help="Begin after this entry of the run.")] = 0,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Tell what a run does as it goes by, until it ends, and what to do then.

    With --json the entries of its journal as they come. Without RUN what all runs do, from now on. An agent that goes
    away is waited for, up to five minutes; then it goes on where it was.
    """
    if run is None and after:
        raise typer.BadParameter("--after is the number of an entry of one run: name the run")
    if run is None:
        _tail_all(url, token, as_json=as_json)
        return
    with agent_and_run(url, token, run) as (agent, run_id), leaving(run_id):
        agent.run(run_id)  # an agent that was not there to begin with is not waited for
        if as_json:
            for entry in agent.follow(run_id, after, away=ToldOnce().away):
                output.document(entry)
        else:
            tell_to_the_end(agent, run_id, after)


def _tail_all(url: str, token: str | None, *, as_json: bool) -> None:
    with AgentClient(url, token) as agent, leaving_all():
        agent.get("/v1/runs", limit=1)  # nor here
        output.complain("following all runs; Ctrl-C leaves")
        for event in agent.follow_all(away=ToldOnce().away):
            if as_json:
                output.document(event)
            else:
                output.draw(lists.event(event), wrap=False)


@commands.command(epilog=examples("agentic entries RUN", "agentic entries --json RUN > journal.jsonl"))
def entries(
    run: Run,
    after: Annotated[int, typer.Option(min=0, help="Begin after this entry.")] = 0,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Print the journal of a run as it is now, one entry a line."""
    next_after: int | None = after
    with agent_and_run(url, token, run) as (agent, run_id):
        while next_after is not None:
            page = agent.get(run_path(run_id, "entries"), after=next_after, limit=PAGE)
            for entry in page["entries"]:
                _print_entry(entry, as_json)
            next_after = page["next_after"]


@commands.command(
    epilog=examples("agentic cat last", "agentic cat RUN memory.md", "agentic cat RUN artifacts/page.png > page.png"),
)
def cat(
    run: Run,
    path: Annotated[str | None, typer.Argument(help="Which file; without it they are listed.", metavar="PATH")] = None,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Print a file of a run in full: a page of its paper trail, or an artifact."""
    with agent_and_run(url, token, run) as (agent, run_id):
        if path is None:
            output.draw(lists.files(agent.get(run_path(run_id, "workspace"))))
            return
        content = _content(agent, run_id, path)
    output.content(content, path)


def _content(agent: AgentClient, run_id: str, path: str) -> bytes:
    """The file; a page of the paper trail is waited for, which is written a moment after its journal."""
    is_page = "/" not in path and path.endswith((".md", ".jsonl"))
    for _ in range(LOOKS if is_page else 0):
        try:
            return agent.content(run_path(run_id, "workspace", path))
        except NotDone as error:
            if error.facts.get("code") != "no_such_file":
                raise
            time.sleep(LOOK_AGAIN_S)
    return agent.content(run_path(run_id, "workspace", path))


def _print_entry(entry: Json, as_json: bool) -> None:
    if as_json:
        output.document(entry)
    else:
        output.draw(lists.entry(entry), wrap=False)
