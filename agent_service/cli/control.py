"""Commands that answer, steer and stop runs, control the agent, and handle dead letters."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

import typer

from agent_service.cli import output, render
from agent_service.cli.client import AgentClient, Json
from agent_service.cli.options import DRY_RUN, NONE, REASON, Values, agent_command, run_command
from agent_service.cli.output import Output
from agent_service.history.text import ask_lines
from agentic_client.errors import TryAgain
from groundwork.service.commands import argument, flag, option
from groundwork.service.errors import Exit, NotDone
from schemas.status import counted

LOOK_AGAIN_S = 0.5
SHOWN = 20
NO_RULES = "nothing is deleted: agent.keep_runs has no rule, so all runs are kept (docs/OPERATIONS.md#keep)"
Kind = Literal["message", "resume", "raise_budget"]

commands = typer.Typer()
dlq = typer.Typer(name="dlq", no_args_is_help=True, help="They need a running agent.")
commands.add_typer(dlq)


@agent_command(commands, "agentic inbox", "agentic inbox --json | jq")
def inbox(agent: AgentClient, limit: int = option("How many of the newest.", default=20, min=1, max=200)) -> Output:
    return Output(agent.call("show_inbox", limit=limit), render.inbox)


@run_command(
    commands,
    "agentic answer RUN 'the one in the cellar'",
    "agentic answer --max-steps 15 RUN 'go on'",
    "agentic answer --ran RUN 'the mail left at noon'",
)
def answer(
    agent: AgentClient,
    text: str | None = argument("The answer.", "TEXT", default=None),
    ran: bool = flag("The write ran; the text is its result.", "--ran"),
    did_not_run: bool = flag("The write did not run.", "--did-not-run"),
    look: bool = flag("You do not know: the run looks by itself.", "--look"),
    asked: Values = NONE,
    limits: Values = NONE,
) -> Output:
    """Limits raise its budget. A write in doubt is settled by --ran, --did-not-run or --look. With --hash or --step, no
    newer question is.
    """
    outcomes = [name for name, is_said in {"ran": ran, "did_not_run": did_not_run, "look": look}.items() if is_said]
    if len(outcomes) > 1 or not (text or outcomes):
        raise NotDone("give the TEXT of the answer, or one of --ran, --did-not-run and --look", Exit.USAGE)
    body = {"answer": text, "outcome": next(iter(outcomes), None), "constraints": limits or None, **asked}
    return _with_status(agent.call("answer_run", body), "has the answer")


@run_command(commands, "agentic approve RUN", "agentic approve --step 2 --hash 5f0c8e3a91b2d4760b7e15c2f8a96d34 RUN")
def approve(agent: AgentClient, ruling: Values = NONE) -> Output:
    return _decide(agent, "approve", ruling)


@run_command(commands, "agentic reject --reason 'not to customers' RUN")
def reject(agent: AgentClient, ruling: Values = NONE) -> Output:
    """Without --hash the request is shown first."""
    return _decide(agent, "reject", ruling)


def _decide(agent: AgentClient, decision: str, ruling: Json) -> Output:
    """Without a hash the run's request is shown, and its own hash and step are sent: nothing newer is decided."""
    if "arguments_hash" not in ruling:
        asks = agent.call("show_run")["asks"]
        if asks is None or asks["kind"] != "approval":
            text = f"{agent.run_id} waits for no approval: `agentic why {agent.run_id}` tells what it waits for"
            raise NotDone(text, Exit.REFUSED, {"code": "not_heard", "run_id": agent.run_id})
        ruling = {"arguments_hash": asks["arguments_hash"], "step": asks["step"], **ruling}
        if not agent.as_json:
            output.draw(render.table(ask_lines(output.safe(asks))))
    reply = agent.call("rule_on_run", {**ruling, "decision": decision})
    return _with_status(reply, "has your approval" if decision == "approve" else "has your rejection")


@run_command(
    commands,
    "agentic signal --message 'the second source is wrong' RUN message",
    "agentic signal --max-steps 15 RUN raise_budget",
    "agentic signal RUN resume",
)
def signal(
    agent: AgentClient,
    kind: Kind = argument("The kind of signal.", "KIND"),
    message: str | None = option("The message.", metavar="TEXT"),
    limits: Values = NONE,
) -> Output:
    """To answer what a run asks for, use `agentic approve`, `reject` and `answer`."""
    if (kind == "message" and not message) or (kind == "raise_budget" and not limits):
        raise typer.BadParameter("message needs a --message, and raise_budget a limit such as --max-steps 15")
    reply = agent.call("signal_run", {"kind": kind, "message": message, "constraints": limits or None})
    return _with_status(reply, "has the signal")


def _with_status(reply: Json, what: str) -> Output:
    follow = f": follow it with `agentic show --watch {reply['run_id']}`" if reply["status"] == "running" else ""
    return Output(reply, f"{reply['run_id']} {what}; it is {reply['status']}{follow}")


@run_command(commands, "agentic cancel --reason 'no longer needed' RUN")
def cancel(agent: AgentClient, reason: str | None = REASON) -> Output:
    return Output(agent.call("cancel_run", {"reason": reason}), f"{agent.run_id} is cancelled")


@run_command(commands, "agentic dismiss RUN")
def dismiss(agent: AgentClient) -> Output:
    """A new message for it brings it back."""
    reply = agent.call("dismiss_run", {})
    return Output(reply, f"{agent.run_id} is dismissed by {reply['by']}")


@agent_command(commands, "agentic stop-all --dry-run", "agentic stop-all --reason 'it mails everybody'")
def stop_all(agent: AgentClient, reason: str | None = REASON, dry_run: bool = DRY_RUN) -> Output:
    """Work under way ends by itself, and its result is kept. `agentic go-on` resumes everything."""
    if dry_run:
        counts = agent.call("count_runs")["by_status"]
        text = "would stop {running} running and {queued} queued runs, and refuse new ones".format_map(counts)
        return Output({"dry_run": True, **counts}, text)
    reply = agent.call("stop_all", {"reason": reason})
    return Output(
        reply, f"everything is stopped since {reply['since'][:19]}Z, by {reply['by']}; `agentic go-on` resumes it"
    )


@agent_command(commands, "agentic go-on")
def go_on(agent: AgentClient) -> Output:
    return Output(agent.call("go_on", {}), "everything is resumed")


@agent_command(commands, "agentic drain", "agentic drain --within 300")
def drain(
    agent: AgentClient,
    within: float = option("How long its open work may take, in seconds.", default=60.0, min=0, max=3600),
    dry_run: bool = DRY_RUN,
) -> Output:
    """It returns when the agent has ended. Name that very process, and no address that several share. It finishes model
    calls under way; another agent of the same store, or the next start, goes on from there."""
    if dry_run:
        now = agent.call("show_drain")
        calls = counted(now["model_calls"], "model calls")
        return Output({**now, "dry_run": True}, f"would end after {calls} under way")
    reply = agent.call("drain", {"within_s": within})
    with suppress(TryAgain):  # it has ended, unless another process answers in its place
        while agent.call("show_drain")["draining"]:
            time.sleep(LOOK_AGAIN_S)
    return Output({**reply, "ended": True}, "drained: it has ended")


@agent_command(commands, "agentic prune --dry-run", "agentic prune")
def prune(agent: AgentClient, dry_run: bool = DRY_RUN) -> Output:
    """Open runs stay, and runs that they need. The paths of a deleted run answer 410, and its wake id stays taken."""
    answers = [agent.call("prune", {"dry_run": dry_run})]
    while answers[-1]["more"]:
        answers.append(agent.call("prune", {}))
    sums: Json = {
        name: dict(sum((Counter(answer[name]) for answer in answers), Counter())) for name in ("runs", "artifacts")
    }
    listed = [run for answer in answers for run in answer["listed"]]
    return Output({**answers[-1], **sums, "listed": listed}, lambda pruned: "\n".join(_pruned(pruned)))


def _pruned(pruned: Json) -> Iterator[str]:
    counts: Json = {"runs": pruned["runs"], "runs' artifacts": pruned["artifacts"]}
    total = sum(number for rules in counts.values() for number in rules.values())
    deleted = "would be deleted" if pruned["dry_run"] else "deleted"
    yield f"{deleted}: {counted(total, 'runs')}" if pruned["rules"] else NO_RULES
    for what, rules in counts.items():
        yield from (f"  {counted(number, what)} by {rule}" for rule, number in rules.items())
    yield from (f"  {number} {kind} of the gateway" for kind, number in pruned["gateway"].items() if number)
    yield from (f"  {run['run_id']}  {run['status']:<9}  {run['ended_at'][:19]}Z" for run in pruned["listed"][:SHOWN])
    if (more := len(pruned["listed"]) - SHOWN) > 0:
        yield f"  and {more} more: --json lists them"
    yield from (f"! {pruned[name]}" for name in ("trouble", "not_reached") if pruned[name])


@agent_command(dlq, "agentic dlq ls", "agentic dlq ls --all --json")
def ls(
    agent: AgentClient,
    everything: bool = flag("Include those that were retried or dropped.", "--all"),
    limit: int = option("How many at most.", default=50, min=1, max=100),
    cursor: int = option("Continue after this one: `next_cursor` of --json.", default=0, min=0, metavar="ID"),
) -> Output:
    """List the dead letters, oldest first."""
    return Output(agent.call("list_letters", open=not everything, limit=limit, cursor=cursor), render.letters)


NUMBER = argument("As `agentic dlq ls` shows it.", "ID", min=1)
NUMBERS = argument("As `agentic dlq ls` shows them.", "ID", min=1)


@agent_command(dlq, "agentic dlq show 17")
def show(agent: AgentClient, number: int = NUMBER) -> Output:
    """Show one: its origin, the reason, and its body."""
    return Output(_letter(agent, number), render.details)


def _letter(agent: AgentClient, number: int) -> Json:
    for letter in agent.call("list_letters", id=number)["letters"]:
        return dict(letter)
    raise NotDone(f"there is no dead letter {number}", Exit.NOT_FOUND, {"code": "unknown_letter"})


@agent_command(dlq, "agentic dlq retry 17", "agentic dlq retry 17 18 19")
def retry(agent: AgentClient, numbers: list[int] = NUMBERS, dry_run: bool = DRY_RUN) -> None:
    """Publish the refused message again, once its cause is corrected. Its dedupe_key stays; your name is recorded."""
    _settle(agent, "retry_letter", numbers, "sent again", dry_run=dry_run)


@agent_command(dlq, "agentic dlq drop 17")
def drop(agent: AgentClient, numbers: list[int] = NUMBERS, dry_run: bool = DRY_RUN) -> None:
    """Delete a dead letter. Your name is recorded, and `ls --all` shows it."""
    _settle(agent, "discard_letter", numbers, "dropped", dry_run=dry_run)


def _settle(agent: AgentClient, operation: str, numbers: list[int], done: str, *, dry_run: bool) -> None:
    for number in numbers:
        if dry_run:
            letter = _letter(agent, number)
            text = f"dead letter {number} would be {done}: {letter['subject']}, {letter['reason']}"
        else:
            letter, text = agent.call(operation, {}, {"seq": str(number)}), f"dead letter {number} was {done}"
        output.show(letter, text, as_json=agent.as_json)
