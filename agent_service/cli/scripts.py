"""The commands on scripts, which stand in the place of a model: `agentic script`."""

from pathlib import Path

import typer

from agent_service.cli.options import argument, of_files
from agent_service.cli.output import Outcome
from agent_service.models.script_review import review
from groundwork.service.exits import Exit

commands = typer.Typer(no_args_is_help=True)


@commands.callback()
def about() -> None: ...


@of_files(commands, "agentic script check script.yaml", "agentic script check scripts/*.yaml")
def check(files: list[Path] = argument("Scripts.", "FILE", exists=True, dir_okay=False)) -> Outcome:
    """Say what is wrong with scripts, and what they leave open. Exit code 78 where something is wrong."""
    found = [review(file) for file in files]
    told = [{"file": str(one.file), "flaws": one.flaws, "advice": one.advice} for one in found]
    code = Exit.MISCONFIGURED if any(one.flaws for one in found) else Exit.OK
    return Outcome(told, "\n".join(one.told() for one in found), code)
