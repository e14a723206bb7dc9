"""`ductile-gateway ductile install` and `remove`: adds agents to a Ductile, and takes them out again."""

import os
import shutil
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

import typer

from ductile_gateway.installation.configuration import DuctileProgram, read_config
from ductile_gateway.installation.plan import ChangePlan, plan_install, plan_removal
from ductile_gateway.installation.rendering import Options
from groundwork.service.errors import Misconfigured

commands = typer.Typer(no_args_is_help=True)

Place = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of Ductile's config.yaml.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
Binary = Annotated[Path | None, typer.Option("--ductile", help="The program `ductile`, if it is not on the PATH.")]
Unchecked = Annotated[bool, typer.Option("--unchecked", help="Do not have Ductile check the configuration.")]
Generation = Annotated[Literal["m", "n"] | None, typer.Option(help="Of the Ductile, where nothing tells it.")]


@commands.command()
def install(
    place: Place,
    yes: Yes = False,
    dry_run: DryRun = False,
    writes: Annotated[bool, typer.Option("--writes", help="Agents may also use tools that write.")] = False,
    answers: Annotated[bool, typer.Option("--answers", help="Ductile may answer, approve and cancel.")] = False,
    webhook: Annotated[bool, typer.Option("--webhook", help="Signed webhooks may start runs.")] = False,
    outcomes: Annotated[Path | None, typer.Option(help="Keep outcomes and questions as files there.")] = None,
    goal: Annotated[str | None, typer.Option(help="A goal to pursue by itself, with --every or --cron.")] = None,
    every: Annotated[str | None, typer.Option(help="How often, such as 24h; at first at once.")] = None,
    cron: Annotated[str | None, typer.Option(help='When, such as "0 7 * * *".')] = None,
    agent: Annotated[str, typer.Option(help="The agent's HTTP API.")] = Options.agent,
    gateway: Annotated[str, typer.Option(help="The gateway, for Ductile's relay.")] = Options.gateway,
    settings: Annotated[Path, typer.Option(help="Of agent and gateway: made if not there.")] = Options.settings,
    ductile: Binary = None,
    generation: Generation = None,
    unchecked: Unchecked = False,
) -> None:
    """Show what would be added, ask, and add it: plugins, a token, a relay both ways. Nothing is overwritten.

    Again, it brings up to date what was added, and leaves alone what you have changed.
    """
    given = locals()
    if [goal, every or cron].count(None) == 1 or (every and cron):
        raise typer.BadParameter("a goal to pursue by itself has both --goal and one of --every and --cron")
    plan = plan_install(read_config(place), Options(**{one.name: given[one.name] for one in fields(Options)}))
    _apply(plan, ductile, yes=yes, dry_run=dry_run, checked=not unchecked)


@commands.command()
def remove(
    place: Place, yes: Yes = False, dry_run: DryRun = False, ductile: Binary = None, unchecked: Unchecked = False
) -> None:
    """Remove what `install` added. What you changed since stays."""
    _apply(plan_removal(read_config(place)), ductile, yes=yes, dry_run=dry_run, checked=not unchecked)


def _apply(plan: ChangePlan, binary: Path | None, *, yes: bool, dry_run: bool, checked: bool) -> None:
    path = str(binary.absolute()) if binary else shutil.which("ductile")
    if binary and not os.access(binary, os.X_OK):
        raise Misconfigured(f"--ductile {binary} is not a program that can be run")
    program = DuctileProgram(path) if path else None
    for kept in plan.kept:
        _say(f"kept: {kept}, which was changed since it was put there, or is named by what was")
    _say(plan.text() or "There is nothing to change.")
    if not plan.changes or dry_run:
        return
    if not (yes or sys.stdin.isatty()):
        raise Misconfigured("there is no terminal to ask: look at it with --dry-run, then give --yes")
    if yes or typer.confirm("Change it like this?"):
        plan.apply(program, checked=checked)
        _say(plan.next_steps(program))
    else:
        _say("Nothing was changed.")


def _say(text: str) -> None:
    sys.stdout.write(f"{text.rstrip()}\n")
