"""Commands that start runs and show them."""

import os
from functools import partial

import typer

from agent_service.cli import output, render, run_display
from agent_service.cli.client import AgentClient, Json
from agent_service.cli.options import NONE, RUN_OR_ALL, WATCH, Values, agent_command, run_command
from agent_service.cli.output import Output
from agentic_client.errors import NotAllowed, TryAgain
from groundwork.service.commands import argument, option
from groundwork.service.errors import Exit, NotDone
from schemas.bounded import json_object

PAGE = 15
"""Entries per request; one has up to 1 MiB."""

commands = typer.Typer()

GOAL = argument("The goal.", "GOAL")
AFTER = option("Continue after this entry of the run.", default=0, min=0)


@agent_command(commands, "agentic run --watch 'show me how this works'")
def run(
    agent: AgentClient,
    goal: str = GOAL,
    watch: bool = WATCH,
    limits: Values = NONE,
    order: Values = NONE,
) -> Output:
    """0 done, 1 failed, 3 escalated or paused for a person, 4 cancelled. Ctrl-C leaves; the run goes on."""
    agent.run_id = _wake(agent, goal, limits, order)["run_id"]
    if not agent.as_json:
        output.print_error(f"accepted: {output.safe(agent.run_id)}")
    try:
        return run_display.watch_run(agent, watch=watch)
    except NotAllowed as error:
        text = f"left; {agent.run_id} goes on: {error}; to start a run and not follow it, use `agentic wake`"
        raise NotDone(text, Exit.INTERRUPTED, {"code": error.code, "run_id": agent.run_id}) from error


@agent_command(
    commands,
    "agentic wake 'fetch web https://example.com and produce a 2 para critique'",
    "agentic wake --wake-id ticket-4711 --max-steps 5 --context '{\"tone\": \"warm\"}' 'answer the ticket'",
)
def wake(agent: AgentClient, goal: str = GOAL, limits: Values = NONE, order: Values = NONE) -> Output:
    """Follow it with `agentic tail`."""
    accepted = _wake(agent, goal, limits, order)
    return Output(accepted, accepted["run_id"])


def _wake(agent: AgentClient, goal: str, limits: Values, order: Values) -> Json:
    wake_id = order.get("wake_id", f"cli-{os.urandom(8).hex()}")
    background = _json_object(order.get("context"))
    body = order | {"goal": goal, "constraints": limits or None, "wake_id": wake_id, "context": background}
    try:
        return agent.call("wake", body)
    except TryAgain as error:
        error.args = (f"{error}. To ask again without asking twice, add --wake-id {wake_id}",)
        raise


def _json_object(text: str | None) -> Json | None:
    found = json_object(text.encode(errors="surrogatepass")) if text else None
    if found is None and text is not None:
        raise NotDone('--context takes a JSON object, such as \'{"tone": "warm"}\'', Exit.USAGE)
    return found


@agent_command(
    commands,
    "agentic runs --status running --status paused",
    "agentic runs --since 2h --tool fetch --text invoice",
    "agentic runs --json | jq",
)
def runs(
    agent: AgentClient,
    filters: Values = NONE,
    limit: int = option("How many of the newest.", default=20, min=1, max=200),
    cursor: str | None = option("Continue after this run: `next_cursor` of --json.", metavar="RUN"),
) -> Output:
    return Output(agent.call("list_runs", **filters, limit=limit, cursor=cursor), render.runs)


@run_command(
    commands, "agentic show RUN", "agentic show --watch last", "agentic show RUN --step 2", "agentic show --json RUN"
)
def show(
    agent: AgentClient,
    watch: bool = WATCH,
    step: int | None = option("Show this step in full.", min=1, metavar="N"),
) -> Output:
    """--watch sets the exit code as `agentic run` does."""
    if step is not None:
        return Output(agent.call("show_step", path={"step": str(step)}), render.step)
    view = agent.call("show_run")
    return run_display.watch_run(agent, watch=True) if watch else Output(view, partial(run_display.panel_of, agent))


@run_command(commands, "agentic prompt last", "agentic prompt RUN --call 3 | less")
def prompt(
    agent: AgentClient,
    call: int | None = option("The number of the call; without it the newest.", min=1, metavar="N"),
) -> Output:
    return Output(agent.call("show_call", path={"call": str(call or _newest_call(agent))}), render.call)


def _newest_call(agent: AgentClient) -> int:
    calls = [item["call"] for item in agent.call("show_timeline")["items"] if item["call"]]
    if not calls:
        raise NotDone(f"{agent.run_id} has made no model call yet", Exit.NOT_FOUND, {"code": "unknown_call"})
    return int(max(calls))


@run_command(commands, "agentic why RUN", "agentic why last")
def why(agent: AgentClient) -> Output:
    """It also looks at the messages of the run on the bus, and at who holds them."""
    return Output(agent.call("show_why"), render.why)


@agent_command(commands, "agentic tail last", "agentic tail", "agentic tail --json --after 12 RUN | jq .kind")
def tail(agent: AgentClient, run: str | None = RUN_OR_ALL, after: int = AFTER) -> None:
    """--json prints journal entries as they come. Without RUN it follows all runs, from now on. It waits up to five
    minutes for an agent that goes away."""
    if run is None and after:
        raise typer.BadParameter("--after is the number of an entry of one run: name the run")
    agent.run_name = run or ""
    run_id = agent.run_id if run else ""
    agent.call("whoami")  # an agent that was never there is not waited for
    agent.retry_while_away()
    with run_display.detach_on_interrupt(run_id):
        if not run_id:
            output.print_error("following all runs; Ctrl-C leaves")
            for event in agent.follow("follow_all", {}):
                output.show(event, render.event, as_json=agent.as_json, wrap=False)
        elif agent.as_json:
            for entry in agent.follow("follow_run", {"run_id": run_id}, after):
                output.print_json(entry)
        else:
            run_display.tail_run(agent, after)


@run_command(commands, "agentic entries RUN", "agentic entries --json RUN > journal.jsonl")
def entries(agent: AgentClient, after: int = AFTER) -> None:
    next_after: int | None = after
    while next_after is not None:
        page = agent.call("list_entries", after=next_after, limit=PAGE)
        for entry in page["entries"]:
            output.show(entry, render.entry, as_json=agent.as_json, wrap=False)
        next_after = page["next_after"]


@run_command(commands, "agentic cat last", "agentic cat RUN memory.md", "agentic cat RUN artifacts/page.png > page.png")
def cat(
    agent: AgentClient, path: str | None = argument("The file; without it all are listed.", "PATH", default=None)
) -> Output | None:
    if path is None:
        return Output(agent.call("list_files"), render.files)
    output.print_file(agent.read(agent.run_id, path), path)
    return None
