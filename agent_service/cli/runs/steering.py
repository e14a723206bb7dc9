"""The commands that start, steer, answer and stop runs: clients of a running agent's HTTP API."""

import json
import os
import time
from typing import Annotated, Any, Literal

import typer

from agent_service.cli import output
from agent_service.cli.client import LOOK_AGAIN_S, AgentClient, Json, unless_away
from agent_service.cli.options import ArgumentsHash, Asking, Limits, Reason, Step, Watch, given, of_agent, of_run
from agent_service.cli.runs.drawing import fit, named_rows
from agent_service.cli.runs.watching import show_to_the_end
from agent_service.history.asked import asked
from groundwork.service.commands import examples
from groundwork.service.exits import Exit, NotDone

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
    reason: Reason = None,
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


DECIDED = {"approve": "approved", "reject": "rejected"}
Ran = Annotated[bool, typer.Option("--ran", help="It was carried out; the text is what it brought.")]
DidNotRun = Annotated[bool, typer.Option("--did-not-run", help="It was not carried out.")]
Look = Annotated[bool, typer.Option("--look", help="Nobody knows: the run may look by itself.")]


@commands.command(
    epilog=examples("agentic approve RUN", "agentic approve --step 2 --hash 5f0c8e3a91b2d4760b7e15c2f8a96d34 RUN")
)
@of_run
def approve(asking: Asking, step: Step = None, arguments_hash: ArgumentsHash = None, reason: Reason = None) -> None:
    _decide(asking, "approve", arguments_hash, given(step=step, reason=reason))


@commands.command(epilog=examples("agentic reject --reason 'not to customers' RUN"))
@of_run
def reject(asking: Asking, step: Step = None, arguments_hash: ArgumentsHash = None, reason: Reason = None) -> None:
    """Without --hash it is shown first."""
    _decide(asking, "reject", arguments_hash, given(step=step, reason=reason))


@commands.command(
    epilog=examples(
        "agentic answer RUN 'the one in the cellar'",
        "agentic answer --max-steps 15 RUN 'go on'",
        "agentic answer --ran RUN 'the mail left at noon'",
    )
)
@of_run
def answer(
    asking: Asking,
    text: Annotated[str | None, typer.Argument(help="What it is told.", metavar="TEXT")] = None,
    ran: Ran = False,
    did_not_run: DidNotRun = False,
    look: Look = False,
    limits: Limits = None,
) -> None:
    """Budgets may be raised with it. Of a write in doubt say what came of it: --ran, --did-not-run, or --look."""
    outcomes = [name for name, is_said in {"ran": ran, "did_not_run": did_not_run, "look": look}.items() if is_said]
    if len(outcomes) > 1:
        raise NotDone("say one of --ran, --did-not-run and --look", Exit.USAGE)
    if text is None and not outcomes:
        raise NotDone("say what it is told: agentic answer RUN 'TEXT'", Exit.USAGE)
    body = given(answer=text, outcome=next(iter(outcomes), None), constraints=limits)
    _tell(asking, asking.agent.post(asking.path("answers"), body), "has the answer")


def _decide(asking: Asking, decision: Literal["approve", "reject"], arguments_hash: str | None, body: Json) -> None:
    about = arguments_hash or _shown(asking.agent.run(asking.run_id), as_json=asking.as_json)
    heard = asking.agent.post(asking.path("approvals"), {**body, "decision": decision, "arguments_hash": about})
    _tell(asking, heard, f"is told: {DECIDED[decision]}")


def _shown(view: Json, *, as_json: bool) -> str:
    """The hash of what waits for approval, which people are shown. Raises NotDone where nothing does."""
    asks = view["asks"]
    if asks is None or asks["kind"] != "approval":
        what = f"it asks for {asks['kind'].replace('_', ' ')}" if asks else f"it is {view['status']}"
        text = f"nothing of {view['run_id']} waits for an approval: {what}"
        raise NotDone(text, Exit.REFUSED, {"code": "not_heard", "run_id": view["run_id"]})
    if not as_json:
        output.draw(named_rows(asked(fit(asks))))
    return str(asks["arguments_hash"])


def _tell(asking: Asking, heard: Any, what: str) -> None:
    follow = f": follow it with `agentic show --watch {heard['run_id']}`" if heard["status"] == "running" else ""
    asking.tell(heard, f"{heard['run_id']} {what}; it is {heard['status']}{follow}")


@commands.command("stop-all", epilog=examples("agentic stop-all --reason 'it mails everybody'"))
@of_agent
def stop_all(
    asking: Asking,
    reason: Reason = None,
) -> None:
    """What is under way ends by itself, and its result is kept. `agentic go-on` lets everything go on."""
    answer = asking.agent.post("/v1/stop-all", given(reason=reason))
    since = f"{answer['since'][:19]}Z, by {fit(answer['by'])}"
    asking.tell(answer, f"everything is stopped since {since}; `agentic go-on` lets it go on")


@commands.command("go-on", epilog=examples("agentic go-on"))
@of_agent
def go_on(asking: Asking) -> None:
    asking.tell(asking.agent.post("/v1/go-on", {}), "everything goes on")


@commands.command(epilog=examples("agentic drain", "agentic drain --within 300"))
@of_agent
def drain(
    asking: Asking,
    within: Annotated[float, typer.Option(min=0, max=3600, help="How long what is in hand may take.")] = 60.0,
) -> None:
    """It returns when it has ended. Name that very process, and no address that several share. Model calls under way
    are waited for; what follows from them is left to another agent of the same store, or to the next start."""
    answer = asking.agent.post("/v1/drain", {"within_s": within})
    with unless_away():  # it has ended, unless another process answers in its place
        while asking.agent.get("/v1/drain")["draining"]:
            time.sleep(LOOK_AGAIN_S)
    asking.tell({**answer, "ended": True}, "drained: it has ended")
