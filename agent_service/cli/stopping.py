"""The commands that stop everything, let it go on, or drain one agent: clients of its HTTP API, wherever it is."""

import time
from typing import Annotated

import typer

from agent_service.cli.client import LOOK_AGAIN_S, unless_away
from agent_service.cli.drawing import fit
from agent_service.cli.options import Asking, given, of_agent
from groundwork.service.commands import examples

commands = typer.Typer()


@commands.command("stop-all", epilog=examples("agentic stop-all --reason 'it mails everybody'"))
@of_agent
def stop_all(
    asking: Asking,
    reason: Annotated[str | None, typer.Option(help="Why; everybody who asks is told.", metavar="TEXT")] = None,
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
