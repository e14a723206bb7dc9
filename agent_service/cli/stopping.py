"""The commands that stop everything, and let it go on: clients of a running agent's HTTP API, wherever it is."""

from typing import Annotated

import typer

from agent_service.cli import output
from agent_service.cli.client import AgentClient
from agent_service.cli.options import PANEL_RUNS, URL, AsJson, Token, Url, examples, given
from agent_service.cli.show import fit

commands = typer.Typer()


@commands.command(
    "stop-all", rich_help_panel=PANEL_RUNS, epilog=examples("agentic stop-all --reason 'it mails everybody'")
)
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


@commands.command("go-on", rich_help_panel=PANEL_RUNS, epilog=examples("agentic go-on"))
def go_on(as_json: AsJson = False, url: Url = URL, token: Token = None) -> None:
    """Let everything go on after `agentic stop-all`, from where it was."""
    with AgentClient(url, token) as agent:
        answer = agent.post("/v1/go-on", {})
    output.tell(answer, "everything goes on", as_json=as_json)
