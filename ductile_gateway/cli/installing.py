"""`ductile-gateway ductile install` and `remove`: adds agents to a Ductile that is there, and takes them out again."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ductile_gateway.installation.found import find
from ductile_gateway.installation.installing import Proposal, installation, removal
from ductile_gateway.installation.next_steps import next_steps, restart
from ductile_gateway.installation.program import DuctileProgram, program
from ductile_gateway.installation.wishes import Schedule, Wishes
from groundwork.service.errors import Misconfigured

commands = typer.Typer(help="Add agents to a Ductile that is there, and take them out again.", no_args_is_help=True)

Place = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of Ductile's config.yaml.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
Binary = Annotated[Path | None, typer.Option("--ductile", help="The program `ductile`, if it is not on the PATH.")]
Unchecked = Annotated[bool, typer.Option("--unchecked", help="Do not have Ductile check the configuration.")]
_ON = "What agents need of it"
_WHERE = "Where things are"


@commands.command()
def install(
    place: Place,
    yes: Yes = False,
    dry_run: DryRun = False,
    writes: Annotated[
        bool, typer.Option("--writes", help="Agents may also use tools that write.", rich_help_panel=_ON)
    ] = False,
    answers: Annotated[
        bool, typer.Option("--answers", help="Ductile may answer, approve and cancel.", rich_help_panel=_ON)
    ] = False,
    webhook: Annotated[
        bool, typer.Option("--webhook", help="Whoever has a secret orders runs by webhook.", rich_help_panel=_ON)
    ] = False,
    outcomes: Annotated[
        Path | None, typer.Option(help="Keep outcomes and questions as files there.", rich_help_panel=_ON)
    ] = None,
    goal: Annotated[
        str | None, typer.Option(help="A goal to pursue by itself, with --every or --cron.", rich_help_panel=_ON)
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="How often, such as 24h; at first at once.", rich_help_panel=_ON)
    ] = None,
    cron: Annotated[str | None, typer.Option(help='When, such as "0 7 * * *".', rich_help_panel=_ON)] = None,
    agent: Annotated[str, typer.Option(help="The agent's HTTP API.", rich_help_panel=_WHERE)] = Wishes.agent,
    gateway: Annotated[
        str, typer.Option(help="The gateway, for Ductile's relay.", rich_help_panel=_WHERE)
    ] = Wishes.gateway,
    settings: Annotated[
        Path, typer.Option(help="Settings of agent and gateway: made, if they are not there.", rich_help_panel=_WHERE)
    ] = Wishes.settings,
    ductile: Binary = None,
    generation: Annotated[
        Literal["m", "n"] | None, typer.Option(help="Of the Ductile, where nothing tells it.", rich_help_panel=_WHERE)
    ] = None,
    unchecked: Unchecked = False,
) -> None:
    """Show what would be added, ask, and add it: plugins, a token, a relay both ways. Nothing is overwritten.

    Again, it brings up to date what was added, and leaves alone what you have changed.
    """
    wishes = Wishes(
        agent=agent,
        gateway=gateway,
        settings=settings,
        generation=generation,
        writes=writes,
        answers=answers,
        webhook=webhook,
        outcomes=outcomes,
        schedule=_schedule(goal, every, cron),
    )
    found, ductiles = find(place), program(ductile)
    if ductiles and (theirs := found.generation()) and theirs != ductiles.generation():
        raise Misconfigured(f"the configuration is one of generation {theirs}, and {ductiles.program} of another")
    proposal = installation(found, wishes)
    if _done(proposal, ductiles, yes=yes, dry_run=dry_run, checked=not unchecked):
        _say(next_steps(proposal, ductiles))


@commands.command()
def remove(
    place: Place, yes: Yes = False, dry_run: DryRun = False, ductile: Binary = None, unchecked: Unchecked = False
) -> None:
    """Take out again what `install` has put in, and nothing else. What you have changed since stays."""
    ductiles = program(ductile)
    proposal = removal(find(place))
    if _done(proposal, ductiles, yes=yes, dry_run=dry_run, checked=not unchecked):
        _say(f"Taken out. {restart(proposal, ductiles)}")


def _schedule(goal: str | None, every: str | None, cron: str | None) -> Schedule | None:
    if goal is None and every is None and cron is None:
        return None
    if goal is None or (every is None) == (cron is None):
        raise typer.BadParameter("a goal to pursue by itself has both --goal and one of --every and --cron")
    return Schedule(goal, "every", every) if every else Schedule(goal, "cron", str(cron))


def _done(proposal: Proposal, ductile: DuctileProgram | None, *, yes: bool, dry_run: bool, checked: bool) -> bool:
    """Show it, ask, and carry it out; whether it is. Raises Misconfigured."""
    proposal.check()
    for path in proposal.kept:
        _say(f"kept: {path}, which was changed since it was put there, or is named by what was")
    if not proposal.is_needed:
        _say("There is nothing to change.")
        return False
    _say(proposal.text())
    if dry_run:
        return False
    if not (yes or _agreed()):
        _say("Nothing was changed.")
        return False
    proposal.carry_out(ductile, checked=checked)
    return True


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise Misconfigured("nobody is there to ask: look at it with --dry-run, then give --yes")
    return typer.confirm("Change it like this?")


def _say(text: str) -> None:
    sys.stdout.write(f"{text.rstrip()}\n")
