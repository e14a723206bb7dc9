"""The commands of a person whom a run asks: clients of a running agent's HTTP API, wherever it is."""

from typing import Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from agent_service.cli import asked, output
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
    Reason,
    Run,
    Step,
    Token,
    Url,
    given,
    limits_of,
)
from agent_service.cli.show import fit
from groundwork.service.commands import examples

commands = typer.Typer()

Decision = Literal["approve", "reject"]
DECIDED = {"approve": "approved", "reject": "rejected"}
Ran = Annotated[bool, typer.Option("--ran", help="It was carried out; the text is what it brought.")]
DidNotRun = Annotated[bool, typer.Option("--did-not-run", help="It was not carried out.")]
Look = Annotated[bool, typer.Option("--look", help="Nobody knows: the run may look by itself.")]


@commands.command(
    epilog=examples("agentic approve RUN", "agentic approve --step 2 --hash 5f0c8e3a91b2d4760b7e15c2f8a96d34 RUN"),
)
def approve(
    run: Run,
    step: Step = None,
    arguments_hash: ArgumentsHash = None,
    reason: Reason = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Allow what a run asks for. Without --hash it is shown, and just that is allowed."""
    with agent_and_run(url, token, run) as (agent, run_id):
        _decide(agent, run_id, "approve", step, arguments_hash, reason, as_json=as_json)


@commands.command(epilog=examples("agentic reject --reason 'not to customers' RUN"))
def reject(
    run: Run,
    step: Step = None,
    arguments_hash: ArgumentsHash = None,
    reason: Reason = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Refuse what a run asks for: it goes on without, and is told why.

    Without --hash it is shown first.
    """
    with agent_and_run(url, token, run) as (agent, run_id):
        _decide(agent, run_id, "reject", step, arguments_hash, reason, as_json=as_json)


@commands.command(
    epilog=examples(
        "agentic answer RUN 'the one in the cellar'",
        "agentic answer --max-steps 15 RUN 'go on'",
        "agentic answer --ran RUN 'the mail left at noon'",
    ),
)
def answer(
    run: Run,
    text: Annotated[str | None, typer.Argument(help="What it is told.", metavar="TEXT")] = None,
    ran: Ran = False,
    did_not_run: DidNotRun = False,
    look: Look = False,
    max_steps: MaxSteps = None,
    max_tokens: MaxTokens = None,
    max_cost_usd: MaxCost = None,
    max_reframes: MaxReframes = None,
    deadline: Deadline = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Answer the question of a run, or its escalation, which sets it going again.

    Of a write in doubt say what came of it: --ran, --did-not-run, or --look.
    """
    outcome = _outcome(ran=ran, did_not_run=did_not_run, look=look)
    if text is None and outcome is None:
        raise NotDone("say what it is told: agentic answer RUN 'TEXT'", Exit.USAGE)
    limits = limits_of(max_steps, max_tokens, max_cost_usd, max_reframes, deadline)
    with agent_and_run(url, token, run) as (agent, run_id):
        heard = agent.post(run_path(run_id, "answers"), given(answer=text, outcome=outcome, constraints=limits))
    _tell(heard, "has the answer", as_json=as_json)


def _decide(
    agent: AgentClient,
    run_id: str,
    decision: Decision,
    step: int | None,
    arguments_hash: str | None,
    reason: str | None,
    *,
    as_json: bool,
) -> None:
    about = arguments_hash or _shown(agent.run(run_id), as_json=as_json)
    body = given(decision=decision, arguments_hash=about, step=step, reason=reason)
    _tell(agent.post(run_path(run_id, "approvals"), body), f"is told: {DECIDED[decision]}", as_json=as_json)


def _shown(view: Json, *, as_json: bool) -> str:
    """The hash of what waits for approval, which people are shown. Raises NotDone where nothing does."""
    asks = view["asks"]
    if asks is None or asks["kind"] != "approval":
        what = f"it asks for {asks['kind'].replace('_', ' ')}" if asks else f"it is {view['status']}"
        text = f"nothing of {view['run_id']} waits for an approval: {what}"
        raise NotDone(text, Exit.REFUSED, {"code": "not_heard", "run_id": view["run_id"]})
    if not as_json:
        output.draw(_drawn(asks))
    return str(asks["arguments_hash"])


def _drawn(asks: Json) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in asked.rows(fit(asks)):
        grid.add_row(name, Text(text))
    return grid


def _outcome(**said: bool) -> str | None:
    """The one that was said. Raises NotDone for several."""
    named = [name for name, is_said in said.items() if is_said]
    if len(named) > 1:
        raise NotDone("say one of --ran, --did-not-run and --look", Exit.USAGE)
    return next(iter(named), None)


def _tell(heard: Any, what: str, *, as_json: bool) -> None:
    follow = f": follow it with `agentic show --watch {heard['run_id']}`" if heard["status"] == "running" else ""
    output.tell(heard, f"{heard['run_id']} {what}; it is {heard['status']}{follow}", as_json=as_json)
