"""The commands that ask for runs and look at them."""

import json
import os
from enum import StrEnum
from functools import partial

import typer

from agent_service.cli import output, render, watching
from agent_service.cli.client import PASSING, Json
from agent_service.cli.options import (
    RUN_OR_ALL,
    SINCE,
    UNTIL,
    WATCH,
    Asking,
    Given,
    argument,
    given,
    of_agent,
    of_run,
    option,
)
from agent_service.cli.output import Outcome
from groundwork.service.errors import Exit, NotDone

PAGE = 15
"""Entries, which have up to a mebibyte each."""

commands = typer.Typer()

Status = StrEnum("Status", ["QUEUED", "RUNNING", "PAUSED", "DONE", "ESCALATED", "FAILED", "CANCELLED"])
GOAL = argument("The goal.", "GOAL")
AFTER = option("Continue after this entry of the run.", default=0, min=0)


@of_agent(commands, "agentic run --watch 'show me how this works'")
def run(asking: Asking, goal: str = GOAL, watch: bool = WATCH, limits: Given = None, order: Given = None) -> Outcome:
    """0 done, 1 failed, 3 escalated or paused for a person, 4 cancelled. Ctrl-C leaves; the run goes on."""
    run_id = _wake(asking, goal, limits, order or {})["run_id"]
    if not asking.as_json:
        output.complain(f"accepted: {output.safe(run_id)}")
    return watching.run(Asking(asking.agent, run_id, asking.as_json), watch=watch)


@of_agent(
    commands,
    "agentic wake 'fetch web https://example.com and produce a 2 para critique'",
    "agentic wake --wake-id ticket-4711 --max-steps 5 --context '{\"tone\": \"warm\"}' 'answer the ticket'",
)
def wake(asking: Asking, goal: str = GOAL, limits: Given = None, order: Given = None) -> Outcome:
    """Follow it with `agentic tail`."""
    accepted = _wake(asking, goal, limits, order or {})
    return Outcome(accepted, accepted["run_id"])


def _wake(asking: Asking, goal: str, limits: Given, order: Json) -> Json:
    wake_id = order.get("wake_id") or f"cli-{os.urandom(8).hex()}"
    context = _context(order.get("context"))
    body = given(**order | {"goal": goal, "constraints": limits, "wake_id": wake_id, "context": context})
    try:
        return asking.ask("wake", body)
    except NotDone as error:
        if error.exit_code not in PASSING:
            raise
        message = f"{error}. To ask again without asking twice, add --wake-id {wake_id}"
        raise NotDone(message, error.exit_code, error.facts) from error


def _context(text: str | None) -> Json | None:
    try:
        found = json.loads(text, parse_constant=int) if text is not None else None  # int refuses NaN
    except ValueError:
        found = text
    if not isinstance(found, dict | None):
        raise NotDone('--context takes a JSON object, such as \'{"tone": "warm"}\'', Exit.USAGE)
    return found


@of_agent(
    commands,
    "agentic runs --status running --status paused",
    "agentic runs --since 2h --tool fetch --text invoice",
    "agentic runs --json | jq",
)
def runs(
    asking: Asking,
    status: list[Status] | None = option("Only runs of this status; may be repeated."),
    text: str | None = option("Only runs with this in goal, summary or id.", metavar="TEXT"),
    tool: str | None = option("Only runs that used this tool.", metavar="NAME"),
    since: str | None = SINCE,
    until: str | None = UNTIL,
    wake_id: str | None = option("Only the run with this wake id.", metavar="ID"),
    caller: str | None = option("Only runs of this caller, such as `token ci`.", metavar="WHO"),
    limit: int = option("How many of the newest.", default=20, min=1, max=200),
    cursor: str | None = option("Continue after this run: `next_cursor` of --json.", metavar="RUN"),
) -> Outcome:
    page = asking.ask(
        "list_runs",
        status=status,
        text=text,
        tool=tool,
        since=since,
        until=until,
        wake_id=wake_id,
        caller=caller,
        limit=limit,
        cursor=cursor,
    )
    return Outcome(page, render.runs)


@of_run(
    commands, "agentic show RUN", "agentic show --watch last", "agentic show RUN --step 2", "agentic show --json RUN"
)
def show(
    asking: Asking,
    watch: bool = WATCH,
    step: int | None = option("Show this step in full.", min=1, metavar="N"),
) -> Outcome:
    """With --watch the exit code says how it ended, as in `agentic run`."""
    if step is not None:
        return Outcome(asking.ask("show_step", path={"step": str(step)}), render.step)
    view = asking.ask("show_run")
    return watching.run(asking, watch=True) if watch else Outcome(view, partial(watching.drawn, asking))


@of_run(commands, "agentic prompt last", "agentic prompt RUN --call 3 | less")
def prompt(
    asking: Asking,
    call: int | None = option("The number of the call; without it the newest.", min=1, metavar="N"),
) -> Outcome:
    return Outcome(asking.ask("show_call", path={"call": str(call or _newest_call(asking))}), render.call)


def _newest_call(asking: Asking) -> int:
    calls = [item["call"] for item in asking.ask("show_timeline")["items"] if item["call"]]
    if not calls:
        raise NotDone(f"{asking.run_id} has made no model call yet", Exit.NOT_FOUND, {"code": "unknown_call"})
    return int(max(calls))


@of_run(commands, "agentic why RUN", "agentic why last")
def why(asking: Asking) -> Outcome:
    """It also looks at the messages of the run on the bus, and at who holds them."""
    return Outcome(asking.ask("show_why"), render.why)


@of_agent(commands, "agentic tail last", "agentic tail", "agentic tail --json --after 12 RUN | jq .kind")
def tail(asking: Asking, run: str | None = RUN_OR_ALL, after: int = AFTER) -> None:
    """With --json the entries of its journal as they come. Without RUN the entries of all runs, from now on. It waits
    up to five minutes for an agent that goes away."""
    if run is None and after:
        raise typer.BadParameter("--after is the number of an entry of one run: name the run")
    run_id = asking.agent.named(run) if run else ""
    asking.ask("whoami")  # an agent that was never there is not waited for
    asking.agent.be_patient()
    with watching.leaving(run_id):
        if not run_id:
            output.complain("following all runs; Ctrl-C leaves")
            for event in asking.agent.follow("follow_all", {}):
                output.line(event, render.event, as_json=asking.as_json)
        elif asking.as_json:
            for entry in asking.agent.follow("follow_run", {"run_id": run_id}, after):
                output.document(entry)
        else:
            watching.tell(asking, run_id, after)


@of_run(commands, "agentic entries RUN", "agentic entries --json RUN > journal.jsonl")
def entries(asking: Asking, after: int = AFTER) -> None:
    next_after: int | None = after
    while next_after is not None:
        page = asking.ask("list_entries", after=next_after, limit=PAGE)
        for entry in page["entries"]:
            output.line(entry, render.entry, as_json=asking.as_json)
        next_after = page["next_after"]


@of_run(commands, "agentic cat last", "agentic cat RUN memory.md", "agentic cat RUN artifacts/page.png > page.png")
def cat(
    asking: Asking, path: str | None = argument("The file; without it all are listed.", "PATH", default=None)
) -> Outcome | None:
    if path is None:
        return Outcome(asking.ask("list_files"), render.files)
    output.content(asking.agent.read(asking.run_id, path), path)
    return None
