"""The commands that look at runs: clients of a running agent's HTTP API, wherever it is."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from agent_service.cli import output
from agent_service.cli.client import AgentClient, Json, run_path
from agent_service.cli.options import Asking, Cursor, RunOrAll, Since, Until, Watch, of_agent, of_run
from agent_service.cli.runs import show, views
from agent_service.cli.runs.watching import leaving, show_to_the_end, tell_to_the_end
from groundwork.service.commands import examples
from groundwork.service.exits import Exit, NotDone

PAGE = 15
"""Entries, which have up to a mebibyte each."""

commands = typer.Typer()

Status = StrEnum("Status", ["QUEUED", "RUNNING", "PAUSED", "DONE", "ESCALATED", "FAILED", "CANCELLED"])


@commands.command(
    epilog=examples(
        "agentic runs --status running --status paused",
        "agentic runs --since 2h --tool fetch --text invoice",
        "agentic runs --json | jq",
    ),
)
@of_agent
def runs(
    asking: Asking,
    status: Annotated[list[Status] | None, typer.Option(help="Only runs that stand so; may be repeated.")] = None,
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
) -> None:
    asked = {"status": status, "text": text, "tool": tool, "since": since, "until": until, "wake_id": wake_id}
    page = asking.agent.get("/v1/runs", **asked, caller=caller, limit=limit, cursor=cursor)
    asking.show(page, views.runs)


@commands.command(
    "show",
    epilog=examples(
        "agentic show RUN", "agentic show --watch last", "agentic show RUN --step 2", "agentic show --json RUN"
    ),
)
@of_run
def show_run(
    asking: Asking,
    watch: Watch = False,
    step: Annotated[int | None, typer.Option(min=1, help="Show this step in full instead.", metavar="N")] = None,
) -> None:
    """With --watch the exit code says how it ended, as of `agentic run`."""
    if step is not None:
        detail = asking.agent.get(asking.path("steps", str(step)))
        asking.tell(detail, views.step(detail))
        return
    view = asking.agent.run(asking.run_id)
    if watch:
        raise typer.Exit(show_to_the_end(asking.agent, asking.run_id, watch=True, as_json=asking.as_json))
    asking.show(view, lambda view: show.run(view, asking.agent.timeline(asking.run_id)))


@commands.command(epilog=examples("agentic prompt last", "agentic prompt RUN --call 3 | less"))
@of_run
def prompt(
    asking: Asking,
    call: Annotated[
        int | None, typer.Option(min=1, help="Which model call; without it the newest.", metavar="N")
    ] = None,
) -> None:
    view = asking.agent.get(asking.path("calls", str(call or _newest_call(asking.agent, asking.run_id))))
    asking.tell(view, views.call(view))


def _newest_call(agent: AgentClient, run_id: str) -> int:
    calls = [item["call"] for item in agent.timeline(run_id)["items"] if item["call"]]
    if not calls:
        raise NotDone(f"{run_id} has asked no model yet", Exit.NOT_FOUND, {"code": "unknown_call"})
    return int(max(calls))


@commands.command(epilog=examples("agentic inbox", "agentic inbox --json | jq"))
@of_agent
def inbox(
    asking: Asking,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, the newest.")] = 20,
) -> None:
    asking.show(asking.agent.get("/v1/inbox", limit=limit), views.inbox)


@commands.command(epilog=examples("agentic why RUN", "agentic why last"))
@of_run
def why(asking: Asking) -> None:
    """Also what is on the bus for it, and who holds it."""
    asking.show(asking.agent.get(asking.path("why")), views.why)


@commands.command(
    epilog=examples("agentic tail last", "agentic tail", "agentic tail --json --after 12 RUN | jq .kind"),
)
@of_agent
def tail(
    asking: Asking,
    run: RunOrAll = None,
    after: Annotated[int, typer.Option(min=0, help="Begin after this entry of the run.")] = 0,
) -> None:
    """With --json the entries of its journal as they come. Without RUN what all runs do, from now on. An agent that
    goes away is waited for, up to five minutes; then it goes on where it was."""
    if run is None and after:
        raise typer.BadParameter("--after is the number of an entry of one run: name the run")
    run_id = asking.agent.named(run) if run else None
    with leaving(run_id):
        asking.agent.get(run_path(run_id) if run_id else "/v1/runs")  # an agent that was never there is not waited for
        if run_id is None:
            output.complain("following all runs; Ctrl-C leaves")
            for event in asking.agent.follow_all():
                _print_line(event, views.event, asking)
        elif asking.as_json:
            for entry in asking.agent.follow(run_id, after):
                output.document(entry)
        else:
            tell_to_the_end(asking.agent, run_id, after)


@commands.command(epilog=examples("agentic entries RUN", "agentic entries --json RUN > journal.jsonl"))
@of_run
def entries(
    asking: Asking,
    after: Annotated[int, typer.Option(min=0, help="Begin after this entry.")] = 0,
) -> None:
    next_after: int | None = after
    while next_after is not None:
        page = asking.agent.get(asking.path("entries"), after=next_after, limit=PAGE)
        for entry in page["entries"]:
            _print_line(entry, views.entry, asking)
        next_after = page["next_after"]


@commands.command(
    epilog=examples("agentic cat last", "agentic cat RUN memory.md", "agentic cat RUN artifacts/page.png > page.png"),
)
@of_run
def cat(
    asking: Asking,
    path: Annotated[str | None, typer.Argument(help="Which file; without it they are listed.", metavar="PATH")] = None,
) -> None:
    if path is None:
        asking.show(asking.agent.get(asking.path("workspace")), views.files)
    else:
        output.content(asking.agent.content(asking.path("workspace", path)), path)


def _print_line(told: Json, drawn: Callable[[Json], Text], asking: Asking) -> None:
    if asking.as_json:
        output.document(told)
    else:
        output.draw(drawn(told), wrap=False)
