"""The commands that stop everything, let it go on, or drain one agent: clients of its HTTP API, wherever it is."""

import time
from typing import Annotated

import typer

from agent_service.cli import output
from agent_service.cli.client import LOOK_AGAIN_S, PASSING, AgentClient
from agent_service.cli.complaints import NotDone
from agent_service.cli.options import URL, AsJson, Token, Url, given
from agent_service.cli.show import fit
from groundwork.service.commands import examples

commands = typer.Typer()


@commands.command("stop-all", epilog=examples("agentic stop-all --reason 'it mails everybody'"))
def stop_all(
    reason: Annotated[str | None, typer.Option(help="Why; everybody who asks is told.", metavar="TEXT")] = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Stop everything: no run begins, and no model call or tool, also after restarts.

    What is under way ends by itself, and its result is kept. `agentic go-on` lets everything go on.
    """
    with AgentClient(url, token) as agent:
        answer = agent.post("/v1/stop-all", given(reason=reason))
    since = f"{answer['since'][:19]}Z, by {fit(answer['by'])}"
    output.tell(answer, f"everything is stopped since {since}; `agentic go-on` lets it go on", as_json=as_json)


@commands.command("go-on", epilog=examples("agentic go-on"))
def go_on(as_json: AsJson = False, url: Url = URL, token: Token = None) -> None:
    """Let everything go on after `agentic stop-all`, from where it was."""
    with AgentClient(url, token) as agent:
        answer = agent.post("/v1/go-on", {})
    output.tell(answer, "everything goes on", as_json=as_json)


@commands.command(epilog=examples("agentic drain", "agentic drain --within 300"))
def drain(
    within: Annotated[float, typer.Option(min=0, max=3600, help="How long what is in hand may take.")] = 60.0,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Have one agent take nothing new, end what it has in hand, and then itself.

    Name that very process, and no address that several share. Model calls under way are waited for; what follows from
    them is left to another agent of the same store, or to the next start.
    """
    with AgentClient(url, token) as agent:
        answer = agent.post("/v1/drain", {"within_s": within})
        _until_ended(agent)
    output.tell({**answer, "ended": True}, "drained: it has ended", as_json=as_json)


def _until_ended(agent: AgentClient) -> None:
    """Or until another process answers in its place."""
    try:
        while agent.get("/v1/drain")["draining"]:
            time.sleep(LOOK_AGAIN_S)
    except NotDone as error:
        if error.exit_code not in PASSING:
            raise
