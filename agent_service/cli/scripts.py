"""The commands on scripts, which stand in the place of a model: `agentic script`."""

from pathlib import Path
from typing import Annotated

import typer

from agent_service.cli import output
from agent_service.cli.options import AsJson
from agent_service.models.script_review import review
from groundwork.service.commands import examples
from groundwork.service.exits import Exit

commands = typer.Typer(no_args_is_help=True)


@commands.callback()
def about() -> None: ...


@commands.command(epilog=examples("agentic script check script.yaml", "agentic script check scripts/*.yaml"))
def check(
    files: Annotated[list[Path], typer.Argument(help="Scripts.", metavar="FILE", exists=True, dir_okay=False)],
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with scripts, and what they leave open. Exit code 78 where something is wrong."""
    found = [review(file) for file in files]
    told = [{"file": str(one.file), "flaws": one.flaws, "advice": one.advice} for one in found]
    output.tell(told, "\n".join(one.told() for one in found), as_json=as_json)
    if any(one.flaws for one in found):
        raise typer.Exit(Exit.MISCONFIGURED)
