"""The commands of a person whom a run asks: clients of a running agent's HTTP API, wherever it is."""

from typing import Annotated, Any, Literal

import typer

from agent_service.cli import output
from agent_service.cli.client import Json
from agent_service.cli.complaints import NotDone
from agent_service.cli.drawing import asked, fit, named_rows
from agent_service.cli.exits import Exit
from agent_service.cli.options import ArgumentsHash, Asking, Limits, Reason, Step, given, of_run
from groundwork.service.commands import examples

commands = typer.Typer()

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
