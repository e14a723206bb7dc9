"""The commands that answer, steer and stop runs, and the whole agent."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Literal

import typer

from agent_service.cli import output, render
from agent_service.cli.client import PASSING, Json
from agent_service.cli.options import (
    DRY_RUN,
    REASON,
    Asking,
    Given,
    argument,
    flag,
    given,
    of_agent,
    of_run,
    option,
)
from agent_service.cli.output import Outcome
from agent_service.history.text import ask_lines
from groundwork.service.errors import Exit, NotDone

LOOK_AGAIN_S = 0.5
SHOWN = 20
NO_RULES = "nothing is deleted: agent.keep_runs has no rule, so all runs are kept (docs/OPERATIONS.md#keep)"
Kind = Literal["message", "resume", "raise_budget"]

commands = typer.Typer()
dlq = typer.Typer(name="dlq", no_args_is_help=True, help="They need a running agent.")
commands.add_typer(dlq)


@of_agent(commands, "agentic inbox", "agentic inbox --json | jq")
def inbox(asking: Asking, limit: int = option("How many of the newest.", default=20, min=1, max=200)) -> Outcome:
    return Outcome(asking.ask("show_inbox", limit=limit), render.inbox)


@of_run(
    commands,
    "agentic answer RUN 'the one in the cellar'",
    "agentic answer --max-steps 15 RUN 'go on'",
    "agentic answer --ran RUN 'the mail left at noon'",
)
def answer(
    asking: Asking,
    text: str | None = argument("The answer.", "TEXT", default=None),
    ran: bool = flag("The write ran; the text is its result.", "--ran"),
    did_not_run: bool = flag("The write did not run.", "--did-not-run"),
    look: bool = flag("You do not know: the run looks by itself.", "--look"),
    limits: Given = None,
) -> Outcome:
    """Limits raise its budget. A write in doubt is settled by --ran, --did-not-run or --look."""
    outcomes = [name for name, is_said in {"ran": ran, "did_not_run": did_not_run, "look": look}.items() if is_said]
    if len(outcomes) > 1:
        raise NotDone("give one of --ran, --did-not-run and --look", Exit.USAGE)
    if text is None and not outcomes:
        raise NotDone("an answer needs its text: agentic answer RUN 'TEXT'", Exit.USAGE)
    body = given(answer=text, outcome=next(iter(outcomes), None), constraints=limits)
    return _heard(asking.ask("answer_run", body), "has the answer")


@of_run(commands, "agentic approve RUN", "agentic approve --step 2 --hash 5f0c8e3a91b2d4760b7e15c2f8a96d34 RUN")
def approve(asking: Asking, ruling: Given = None) -> Outcome:
    return _decide(asking, "approve", ruling or {})


@of_run(commands, "agentic reject --reason 'not to customers' RUN")
def reject(asking: Asking, ruling: Given = None) -> Outcome:
    """Without --hash the request is shown first."""
    return _decide(asking, "reject", ruling or {})


def _decide(asking: Asking, decision: str, ruling: Json) -> Outcome:
    about = ruling.get("arguments_hash") or _shown(asking)
    told = asking.ask("rule_on_run", {**ruling, "decision": decision, "arguments_hash": about})
    return _heard(told, f"is told: {decision.removesuffix('e')}ed")


def _shown(asking: Asking) -> str:
    """The hash of what waits for approval, which people are shown. Raises NotDone where nothing does."""
    view = asking.ask("show_run")
    asks = view["asks"]
    if asks is None or asks["kind"] != "approval":
        what = "it asks something else: `agentic inbox` tells what" if asks else f"it is {view['status']}"
        text = f"{view['run_id']} waits for no approval: {what}"
        raise NotDone(text, Exit.REFUSED, {"code": "not_heard", "run_id": view["run_id"]})
    if not asking.as_json:
        output.draw(render.table(ask_lines(output.safe(asks))))
    return str(asks["arguments_hash"])


@of_run(
    commands,
    "agentic signal --message 'the second source is wrong' RUN message",
    "agentic signal --max-steps 15 RUN raise_budget",
    "agentic signal RUN resume",
)
def signal(
    asking: Asking,
    kind: Kind = argument("The kind of signal.", "KIND"),
    message: str | None = option("The message.", metavar="TEXT"),
    limits: Given = None,
) -> Outcome:
    """To answer what a run asks for, use `agentic approve`, `reject` and `answer`."""
    told = asking.ask("signal_run", given(kind=kind, message=message, constraints=limits))
    return _heard(told, "has heard it")


def _heard(told: Json, what: str) -> Outcome:
    follow = f": follow it with `agentic show --watch {told['run_id']}`" if told["status"] == "running" else ""
    return Outcome(told, f"{told['run_id']} {what}; it is {told['status']}{follow}")


@of_run(commands, "agentic cancel --reason 'no longer needed' RUN")
def cancel(asking: Asking, reason: str | None = REASON) -> Outcome:
    return Outcome(asking.ask("cancel_run", given(reason=reason)), f"{asking.run_id} is cancelled")


@of_run(commands, "agentic dismiss RUN")
def dismiss(asking: Asking) -> Outcome:
    """A new message for it brings it back."""
    told = asking.ask("dismiss_run", {})
    return Outcome(told, f"{asking.run_id} is dismissed by {told['by']}")


@of_agent(commands, "agentic stop-all --dry-run", "agentic stop-all --reason 'it mails everybody'")
def stop_all(asking: Asking, reason: str | None = REASON, dry_run: bool = DRY_RUN) -> Outcome:
    """Work under way ends by itself, and its result is kept. `agentic go-on` resumes everything."""
    if dry_run:
        counts = asking.ask("count_runs")["by_status"]
        text = "would stop {running} running and {queued} queued runs, and refuse new ones".format_map(counts)
        return Outcome({"dry_run": True, **counts}, text)
    told = asking.ask("stop_all", given(reason=reason))
    return Outcome(
        told, f"everything is stopped since {told['since'][:19]}Z, by {told['by']}; `agentic go-on` resumes it"
    )


@of_agent(commands, "agentic go-on")
def go_on(asking: Asking) -> Outcome:
    return Outcome(asking.ask("go_on", {}), "everything is resumed")


@of_agent(commands, "agentic drain", "agentic drain --within 300")
def drain(
    asking: Asking,
    within: float = option("How long its open work may take, in seconds.", default=60.0, min=0, max=3600),
    dry_run: bool = DRY_RUN,
) -> Outcome:
    """It returns when the agent has ended. Name that very process, and no address that several share. It finishes model
    calls under way; another agent of the same store, or the next start, goes on from there."""
    if dry_run:
        now = asking.ask("show_drain")
        return Outcome({**now, "dry_run": True}, f"would end after {now['model_calls']} model calls under way")
    told = asking.ask("drain", {"within_s": within})
    try:  # it has ended, unless another process answers in its place
        while asking.ask("show_drain")["draining"]:
            time.sleep(LOOK_AGAIN_S)
    except NotDone as error:
        if error.exit_code not in PASSING:
            raise
    return Outcome({**told, "ended": True}, "drained: it has ended")


@of_agent(commands, "agentic prune --dry-run", "agentic prune")
def prune(asking: Asking, dry_run: bool = DRY_RUN) -> Outcome:
    """Open runs stay, and runs that they need. The paths of a deleted run answer 410, and its wake id stays taken."""
    answers = [asking.ask("prune", {"dry_run": dry_run})]
    while answers[-1]["more"]:
        answers.append(asking.ask("prune", {}))
    sums: Json = {
        name: dict(sum((Counter(answer[name]) for answer in answers), Counter())) for name in ("runs", "artifacts")
    }
    listed = [run for answer in answers for run in answer["listed"]]
    return Outcome({**answers[-1], **sums, "listed": listed}, lambda pruned: "\n".join(_pruned(pruned)))


def _pruned(pruned: Json) -> Iterator[str]:
    would = "would be deleted" if pruned["dry_run"] else "were deleted"
    counts: Json = {"runs": pruned["runs"], "runs whose artifacts": pruned["artifacts"]}
    total = sum(number for rules in counts.values() for number in rules.values())
    yield f"{total} runs {would}" if pruned["rules"] else NO_RULES
    for what, rules in counts.items():
        yield from (f"{number:>8} {what} {would} by {rule}" for rule, number in rules.items())
    yield from (f"{number:>8} {kind} of the gateway {would}" for kind, number in pruned["gateway"].items() if number)
    yield from (f"  {run['run_id']}  {run['status']:<9}  {run['ended_at'][:19]}Z" for run in pruned["listed"][:SHOWN])
    yield from (f"! {pruned[name]}" for name in ("trouble", "not_reached") if pruned[name])


@of_agent(dlq, "agentic dlq ls", "agentic dlq ls --all --json")
def ls(
    asking: Asking,
    everything: bool = flag("Include those that were retried or dropped.", "--all"),
    limit: int = option("How many at most.", default=50, min=1, max=100),
    cursor: int = option("Continue after this one: `next_cursor` of --json.", default=0, min=0, metavar="ID"),
) -> Outcome:
    """List the dead letters, oldest first."""
    return Outcome(asking.ask("list_letters", open=not everything, limit=limit, cursor=cursor), render.letters)


NUMBER = argument("As `agentic dlq ls` shows it.", "ID", min=1)
NUMBERS = argument("As `agentic dlq ls` shows them.", "ID", min=1)


@of_agent(dlq, "agentic dlq show 17")
def show(asking: Asking, number: int = NUMBER) -> Outcome:
    """Show one: its origin, the reason, and its body."""
    return Outcome(_letter(asking, number), render.whole)


def _letter(asking: Asking, number: int) -> Json:
    for letter in asking.ask("list_letters", id=number)["letters"]:
        return dict(letter)
    raise NotDone(f"there is no dead letter {number}", Exit.NOT_FOUND, {"code": "unknown_letter"})


@of_agent(dlq, "agentic dlq retry 17", "agentic dlq retry 17 18 19")
def retry(asking: Asking, numbers: list[int] = NUMBERS, dry_run: bool = DRY_RUN) -> None:
    """Publish the refused message again, once its cause is corrected. Its dedupe_key stays; your name is recorded."""
    _settle(asking, "retry_letter", numbers, "sent again", dry_run=dry_run)


@of_agent(dlq, "agentic dlq drop 17")
def drop(asking: Asking, numbers: list[int] = NUMBERS, dry_run: bool = DRY_RUN) -> None:
    """Delete a dead letter. Your name is recorded, and `ls --all` shows it."""
    _settle(asking, "discard_letter", numbers, "dropped", dry_run=dry_run)


def _settle(asking: Asking, operation: str, numbers: list[int], done: str, *, dry_run: bool) -> None:
    for number in numbers:
        if dry_run:
            told = _letter(asking, number)
            text = f"dead letter {number} would be {done}: {told['subject']}, {told['reason']}"
        else:
            told, text = asking.ask(operation, {}, {"seq": str(number)}), f"dead letter {number} was {done}"
        output.tell(told, text, as_json=asking.as_json)
