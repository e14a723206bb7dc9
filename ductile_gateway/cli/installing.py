"""`ductile-gateway ductile install` and `remove`: adds agents to a Ductile, and takes them out again."""

import os
import shutil
import sys
from dataclasses import fields
from pathlib import Path
from typing import Literal

import typer

from ductile_gateway.installation.configuration import read_config
from ductile_gateway.installation.plan import ChangePlan, plan_install, plan_removal
from ductile_gateway.installation.rendering import Options
from groundwork.service.commands import argument, flag, option, say
from groundwork.service.errors import Misconfigured

commands = typer.Typer(no_args_is_help=True)

PLACE = argument("The folder of Ductile's config.yaml.", "DIR")
YES = flag("Do not ask.", "--yes", "-y")
DRY_RUN = flag("Show what would change, and change nothing.", "--dry-run")
BINARY = option("The program `ductile`, if it is not on the PATH.", "--ductile")
UNCHECKED = flag("Do not have Ductile check the configuration.", "--unchecked")


@commands.command()
def install(
    place: Path = PLACE,
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
    writes: bool = flag("Agents may also use tools that write.", "--writes"),
    answers: bool = flag("Ductile may answer, approve and cancel.", "--answers"),
    webhook: bool = flag("Signed webhooks may start runs.", "--webhook"),
    outcomes: Path | None = option("Keep outcomes and questions as files there."),
    goal: str | None = option("A goal to pursue by itself, with --every or --cron."),
    every: str | None = option("How often, such as 24h; at first at once."),
    cron: str | None = option('When, such as "0 7 * * *".'),
    agent: str = option("The agent's HTTP API.", default=Options.agent),
    gateway: str = option("The gateway, for Ductile's relay.", default=Options.gateway),
    settings: Path = option("Of agent and gateway: made if not there.", default=Options.settings),
    ductile: Path | None = BINARY,
    generation: Literal["m", "n"] | None = option("Of the Ductile, where nothing tells it."),
    unchecked: bool = UNCHECKED,
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
    place: Path = PLACE,
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
    ductile: Path | None = BINARY,
    unchecked: bool = UNCHECKED,
) -> None:
    """Remove what `install` added. What you changed since stays."""
    _apply(plan_removal(read_config(place)), ductile, yes=yes, dry_run=dry_run, checked=not unchecked)


def _apply(plan: ChangePlan, binary: Path | None, *, yes: bool, dry_run: bool, checked: bool) -> None:
    program = str(binary.absolute()) if binary else shutil.which("ductile")
    if binary and not (binary.is_file() and os.access(binary, os.X_OK)):
        raise Misconfigured(f"--ductile {binary} is not a program that can be run")
    for kept in plan.kept:
        say(f"kept: {kept}, which was changed since it was put there, or is named by what was")
    say(plan.text().rstrip() or "There is nothing to change.")
    if not plan.changes or dry_run:
        return
    if not (yes or sys.stdin.isatty()):
        raise Misconfigured("there is no terminal to ask: look at it with --dry-run, then give --yes")
    if yes or typer.confirm("Change it like this?"):
        plan.apply(program, checked=checked)
        say(plan.next_steps(program).rstrip())
    else:
        say("Nothing was changed.")
