"""`agentic setup` creates what is missing on the NATS server and tells what differs; `agentic serve` runs the agent;
`agentic ductile` calls the gateway's commands, for the gateway alone knows of Ductile."""

import subprocess
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import typer

from agent_service import settings
from agent_service.archive.records import bus_at_hand
from agent_service.bus.topology import (
    MAX_GIB,
    OPERATORS_CHOICE,
    Executor,
    reserved_gib,
    set_up_within,
    size_found,
    topology,
)
from agent_service.cli import whereabouts
from agent_service.cli.options import CONFIG, flag, of_files, option
from agent_service.cli.output import Outcome
from agent_service.cli.serve import serve as served
from agent_service.history.plain import one_line
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import MODE, Deviation, check_topology
from groundwork.nats.topology import set_up as create_all
from groundwork.service.commands import examples
from groundwork.service.errors import Exit, Misconfigured, NoRoom
from schemas.values import dataclass

commands = typer.Typer()


@commands.command(epilog=examples("agentic serve --config agentic.yaml"))
def serve(
    config: Path | None = CONFIG,
    take_over: bool = flag("End the agent that owns the bus, and take its place.", "--take-over"),
) -> None:
    """Exit codes: 69 when no bus answers; 78 when a setting has to be corrected first, and when another agent owns the
    bus or has taken it over; 1 for any other failure."""
    raise typer.Exit(served(config, take_over=take_over))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The streams that are wanted. `replicas`, `max_gib`: None for those of what exists. `change`: mend differences."""

    replicas: int | None
    max_gib: float | None
    executors: Sequence[Executor]
    shared: bool
    change: bool
    dry_run: bool

    def changes(self, finding: Deviation) -> bool:
        return self.change and self.heeds(finding)

    def heeds(self, finding: Deviation) -> bool:
        """What an operator chose stays, unless something else is asked for."""
        asked = {"max_bytes": self.max_gib, "num_replicas": self.replicas}.get(finding.field)
        return finding.kind != "differs" or finding.field not in OPERATORS_CHOICE or asked is not None


@of_files(
    commands,
    "agentic setup --config agentic.yaml",
    "agentic setup --max-gib 0.5",
    "agentic setup --replicas 3 --change --dry-run",
    "agentic setup --executor weekday-executor=weekday",
)
def setup(
    config: Path | None = CONFIG,
    max_gib: float | None = option(
        "Most GiB of work that the server keeps, and as much of artifacts; by default as it is, else 10, or what fits.",
        min=0.01,
    ),
    replicas: int | None = option("Replicas in a cluster; by default as it is, else 1.", min=1, max=5),
    executor: list[str] | None = option(
        "Also the consumer of this executor; may be repeated.",
        metavar="NAME=ROUTE[,ROUTE]",
    ),
    shared: bool = flag("Also the streams for a store that several agents share.", "--shared"),
    change: bool = flag("Change what exists and differs.", "--change"),
    dry_run: bool = flag("Change nothing; only say what would change.", "--dry-run"),
) -> Coroutine[Any, Any, Outcome]:
    """Streams that exist are checked, and changed with --change. The server reserves the room for all of them at once:
    some 22 GiB with 10, some 1.3 with 0.5."""
    try:
        executors = [Executor.read(text) for text in executor or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    loaded = settings.load(whereabouts.own(config))
    asked = Asked(
        replicas=replicas,
        max_gib=max_gib,
        executors=executors,
        shared=shared or loaded.shared,
        change=change,
        dry_run=dry_run,
    )
    return _set_up(loaded, asked)


async def _set_up(loaded: settings.AgentSettings, asked: Asked) -> Outcome:
    """FAILED when something exists that differs. Raises Misconfigured, and what the bus raises."""
    async with bus_at_hand(loaded) as link:
        found, gib, chosen = await _made(link, asked)
    found = [one for one in found if asked.heeds(one)]
    differs = any(finding.kind == "differs" for finding in found)
    aside = reserved_gib(gib, shared=asked.shared)
    lines = [one_line(_line(one, asked), 1000) for one in found]
    if any(one.kind in ("created", "missing") for one in found):
        why = "as was asked for" if asked.max_gib else "as what is there"
        if chosen:
            why = "as usual" if gib == MAX_GIB else "for which there is room"
        more = "" if asked.max_gib else "; --max-gib N --change makes it another size"
        verb, size = (
            "would set" if asked.dry_run else "sets",
            f"{aside:.1f} GiB" if aside >= 1 else f"{aside * 1024:.0f} MiB",
        )
        lines.append(f"the server {verb} {size} aside for all of it ({gib:.3g} GiB of work, {why}){more}")
    facts = {"ok": not differs, "dry_run": asked.dry_run, "max_gib": gib, "reserved_gib": round(aside, 3)}
    return Outcome(
        facts | {"findings": [asdict(one) for one in found]},
        "\n".join(lines) or "everything is there already",
        Exit.FAILED if differs and not asked.dry_run else Exit.OK,
    )


async def _made(link: NatsLink, asked: Asked) -> tuple[list[Deviation], float, bool]:
    """The differences found or mended, the size in GiB, and whether that was chosen here, so that less will do."""
    exists, replicas, gib = await size_found(link)
    replicas, chosen = asked.replicas or replicas, asked.max_gib is None and not exists
    reserved, wanted = (
        partial(reserved_gib, shared=asked.shared),
        partial(topology, executors=asked.executors, shared=asked.shared, replicas=replicas),
    )
    gib = asked.max_gib or gib
    try:
        if asked.dry_run:
            return await check_topology(link, wanted(max_gib=gib)), gib, chosen
        if chosen:
            return *await set_up_within(link, gib, lambda gib: wanted(max_gib=gib)), chosen
        return await create_all(link, wanted(max_gib=gib), changes=asked.changes), gib, chosen
    except NoRoom as error:
        needed, less = "no size was found that fits", "name a small one with --max-gib N --change"
        if not chosen:
            needed, less = f"with --max-gib {gib:g} it sets {reserved(gib):.1f} GiB aside", "name less, with --change"
        remedy = f"{less}, or raise max_file_store of the server or the limits of the account"
        raise Misconfigured(f"the NATS server has no room: {error}; {needed}: {remedy}") from error


def _line(finding: Deviation, asked: Asked) -> str:
    what, field, actual = finding.what, finding.field, finding.actual or "not set"
    should = f"{field} is {actual}, expected {finding.expected}"
    match finding.kind:
        case "created":
            return f"created {what}"
        case "missing":
            return f"would create {what}"
        case "changed":
            return f"changed {what}: {field} is {finding.expected} now, and was {actual}"
        case "remade":
            return f"remade {what}: made anew, with its consumers ({finding.expected}): what lay there is said again"
    if not asked.dry_run:
        return f"differs {what}: {should}. Left as it is: --change changes it"
    if not asked.changes(finding):
        return f"would leave {what}: {should}; --change changes it"
    return f"would remake {what}: what lies there is said again" if field == MODE else f"would change {what}: {should}"


_GATEWAY = "from ductile_gateway.cli.main import main; main(name='agentic')"
"""Errors and help are told in the name of the command that was typed."""


@commands.command(
    "ductile",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def ductile(context: typer.Context) -> None:
    command = [sys.executable, "-c", _GATEWAY, "ductile", *context.args]
    raise typer.Exit(subprocess.call(command))  # noqa: S603 - our own program
