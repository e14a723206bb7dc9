"""The commands on scripts, which stand in the place of a model: `agentic script`."""

from pathlib import Path

import typer

from agent_service.cli.options import argument, of_files
from agent_service.cli.output import Outcome
from agent_service.models.scripted_model import read_script
from groundwork.service.errors import Exit, Misconfigured

commands = typer.Typer(no_args_is_help=True)


@commands.callback()
def about() -> None: ...


@of_files(commands, "agentic script check script.yaml", "agentic script check scripts/*.yaml")
def check(files: list[Path] = argument("Scripts.", "FILE", exists=True, dir_okay=False)) -> Outcome:
    """Check scripts for errors and open ends. Exit code 78 where something is wrong."""
    told, lines = [], []
    for file in files:
        try:
            script, flaws = read_script(file), list[str]()
            lines.append(f"✓ {file}: {script.name}, {len(script.rules)} rules")
        except Misconfigured as error:
            script, flaws = None, str(error).removeprefix(f"script {file}").lstrip(": ").split("; ")
        advice = list(script.advice()) if script else []
        lines += [*(f"✗ {file}: {flaw}" for flaw in flaws), *(f"! {file}: {one}" for one in advice)]
        told.append({"file": str(file), "flaws": flaws, "advice": advice})
    return Outcome(told, "\n".join(lines), Exit.MISCONFIGURED if any(one["flaws"] for one in told) else Exit.OK)
