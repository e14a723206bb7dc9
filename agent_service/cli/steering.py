"""The commands that ask for runs and steer them: clients of a running agent's HTTP API, wherever it is."""

import json
import os
from typing import Annotated, Literal

import typer

from agent_service.cli import output
from agent_service.cli.client import AgentClient, Json
from agent_service.cli.complaints import NotDone
from agent_service.cli.drawing import fit
from agent_service.cli.exits import Exit
from agent_service.cli.options import ArgumentsHash, Asking, Limits, Step, Watch, given, of_agent, of_run
from agent_service.cli.watching import show_to_the_end
from groundwork.service.commands import examples

commands = typer.Typer()

Goal = Annotated[str, typer.Argument(help="What is to be reached.", metavar="GOAL")]
WakeId = Annotated[
    str | None, typer.Option(help="Your name for this request: asking again gives the same run.", metavar="TEXT")
]
Context = Annotated[str | None, typer.Option(help="What else the run should know, as a JSON object.", metavar="JSON")]
Untrusted = Annotated[
    bool, typer.Option("--untrusted", help="Goal or context hold what strangers wrote: it asks before it writes.")
]
Kind = Literal["message", "answer", "resume", "raise_budget", "approve", "reject"]


@commands.command(epilog=examples("agentic run --watch 'show me how this works'"))
@of_agent
def run(
    asking: Asking,
    goal: Goal,
    watch: Watch = False,
    limits: Limits = None,
    context: Context = None,
    wake_id: WakeId = None,
    untrusted: Untrusted = False,
) -> None:
    """0 done, 1 failed, 3 escalated or paused for a person, 4 cancelled. Ctrl-C leaves; the run goes on."""
    accepted = _wake(asking.agent, goal, limits, context, wake_id, untrusted=untrusted)
    if not asking.as_json:
        output.complain(f"accepted: {fit(accepted['run_id'])}")
    raise typer.Exit(show_to_the_end(asking.agent, accepted["run_id"], watch=watch, as_json=asking.as_json))


@commands.command(
    epilog=examples(
        "agentic wake 'fetch web https://example.com and produce a 2 para critique'",
        "agentic wake --wake-id ticket-4711 --max-steps 5 --context '{\"tone\": \"warm\"}' 'answer the ticket'",
    )
)
@of_agent
def wake(
    asking: Asking,
    goal: Goal,
    limits: Limits = None,
    context: Context = None,
    wake_id: WakeId = None,
    untrusted: Untrusted = False,
) -> None:
    """`agentic tail` and `agentic show` tell more."""
    answer = _wake(asking.agent, goal, limits, context, wake_id, untrusted=untrusted)
    asking.tell(answer, answer["run_id"])


@commands.command(epilog=examples("agentic cancel --reason 'no longer needed' RUN"))
@of_run
def cancel(
    asking: Asking,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept with the run.", metavar="TEXT")] = None,
) -> None:
    answer = asking.agent.post(asking.path("cancel"), given(reason=reason))
    asking.tell(answer, f"{asking.run_id} is cancelled")


@commands.command(
    epilog=examples(
        "agentic signal --message 'the second source is wrong' RUN message",
        "agentic signal --max-steps 15 RUN raise_budget",
        "agentic signal RUN resume",
    )
)
@of_run
def signal(
    asking: Asking,
    kind: Annotated[Kind, typer.Argument(help="What kind of signal.")],
    message: Annotated[str | None, typer.Option(help="What the run is told.", metavar="TEXT")] = None,
    step: Step = None,
    arguments_hash: ArgumentsHash = None,
    limits: Limits = None,
) -> None:
    """`agentic approve`, `reject` and `answer` are shorter ways."""
    body = given(kind=kind, message=message, constraints=limits, step=step, arguments_hash=arguments_hash)
    answer = asking.agent.post(asking.path("signals"), body)
    asking.tell(answer, f"{asking.run_id} has heard it; it is {answer['status']}")


@commands.command(epilog=examples("agentic dismiss RUN"))
@of_run
def dismiss(asking: Asking) -> None:
    """What comes for it later brings it back."""
    answer = asking.agent.post(asking.path("dismiss"), {})
    asking.tell(answer, f"{asking.run_id} is dismissed by {answer['by']}")


def _wake(
    agent: AgentClient, goal: str, limits: Limits, context: str | None, wake_id: str | None, *, untrusted: bool
) -> Json:
    wake_id = wake_id or f"cli-{os.urandom(8).hex()}"
    body = given(goal=goal, wake_id=wake_id, constraints=limits, context=_context(context), untrusted=untrusted or None)
    try:
        return agent.post("/v1/wake", body)
    except NotDone as error:
        if error.exit_code not in (Exit.UNREACHABLE, Exit.TRY_AGAIN):
            raise
        message = f"{error}. To ask again without asking twice, add --wake-id {wake_id}"
        raise NotDone(message, error.exit_code, error.facts) from error


def _context(text: str | None) -> Json | None:
    try:
        found = json.loads(text) if text is not None else None
    except ValueError:
        found = text
    if not isinstance(found, dict | None):
        raise NotDone('--context takes a JSON object, such as \'{"tone": "warm"}\'', Exit.USAGE)
    try:
        json.dumps(found, allow_nan=False)
    except ValueError:
        text = "--context: what stands as a number in it must be a number, not NaN or Infinity"
        raise NotDone(text, Exit.USAGE) from None
    return found
