"""The commands that ask for runs and steer them: clients of a running agent's HTTP API, wherever it is."""

import json
import os
from typing import Annotated, Literal

import typer

from agent_service.cli import output, show
from agent_service.cli.client import AgentClient, Json, agent_and_run, run_path
from agent_service.cli.complaints import NotDone
from agent_service.cli.exits import Exit
from agent_service.cli.options import (
    URL,
    ArgumentsHash,
    AsJson,
    Deadline,
    MaxCost,
    MaxReframes,
    MaxSteps,
    MaxTokens,
    Run,
    Step,
    Token,
    Url,
    Watch,
    given,
    limits_of,
)
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
    untrusted: Untrusted = False,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Ask for a run and wait for its end. The exit code says how it ended.

    0 done, 1 failed, 3 escalated or paused for a person, 4 cancelled. Ctrl-C leaves; the run goes on.
    """
    limits = limits_of(max_steps, max_tokens, max_cost_usd, max_reframes, deadline)
    with AgentClient(url, token) as agent:
        accepted = _wake(agent, goal, limits, context, wake_id, untrusted=untrusted)
        if not as_json:
            output.complain(f"accepted: {show.fit(accepted['run_id'])}")
        raise typer.Exit(show_to_the_end(agent, accepted["run_id"], watch=watch, as_json=as_json))


@commands.command(
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
    untrusted: Untrusted = False,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Ask for a run and print its id. Accepted is not completed."""
    limits = limits_of(max_steps, max_tokens, max_cost_usd, max_reframes, deadline)
    with AgentClient(url, token) as agent:
        answer = _wake(agent, goal, limits, context, wake_id, untrusted=untrusted)
    output.tell(answer, answer["run_id"], as_json=as_json)


@commands.command(epilog=examples("agentic cancel --reason 'no longer needed' RUN"))
def cancel(
    run: Run,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept with the run.", metavar="TEXT")] = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Cancel a run. What is under way is recorded when it comes, and changes nothing."""
    with agent_and_run(url, token, run) as (agent, run_id):
        answer = agent.post(run_path(run_id, "cancel"), given(reason=reason))
    output.tell(answer, f"{run_id} is cancelled", as_json=as_json)


@commands.command(
    epilog=examples(
        "agentic signal --message 'the second source is wrong' RUN message",
        "agentic signal --max-steps 15 RUN raise_budget",
        "agentic signal RUN resume",
    ),
)
def signal(
    run: Run,
    kind: Annotated[Kind, typer.Argument(help="What kind of signal.")],
    message: Annotated[str | None, typer.Option(help="What the run is told.", metavar="TEXT")] = None,
    step: Step = None,
    arguments_hash: ArgumentsHash = None,
    max_steps: MaxSteps = None,
    max_tokens: MaxTokens = None,
    max_cost_usd: MaxCost = None,
    max_reframes: MaxReframes = None,
    deadline: Deadline = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Tell a run something, resume it, raise its budget.

    `agentic approve`, `reject` and `answer` are shorter ways.
    """
    limits = limits_of(max_steps, max_tokens, max_cost_usd, max_reframes, deadline)
    about = given(step=step, arguments_hash=arguments_hash)
    body = given(kind=kind, message=message, constraints=limits) | about
    with agent_and_run(url, token, run) as (agent, run_id):
        answer = agent.post(run_path(run_id, "signals"), body)
    output.tell(answer, f"{run_id} has heard it; it is {answer['status']}", as_json=as_json)


@commands.command(epilog=examples("agentic dismiss RUN"))
def dismiss(run: Run, as_json: AsJson = False, url: Url = URL, token: Token = None) -> None:
    """Take an escalated run out of the inbox. It stays as it ended."""
    with agent_and_run(url, token, run) as (agent, run_id):
        answer = agent.post(run_path(run_id, "dismiss"), {})
    output.tell(answer, f"{run_id} is dismissed by {answer['by']}", as_json=as_json)


def _wake(
    agent: AgentClient, goal: str, limits: Json | None, context: str | None, wake_id: str | None, *, untrusted: bool
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
        raise NotDone(
            "--context: what stands as a number in it must be a number, not NaN or Infinity", Exit.USAGE
        ) from None
    return found
