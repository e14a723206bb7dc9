"""`agentic setup` creates what is missing on the NATS server and tells what differs; `agentic serve` runs the agent."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from agent_service import settings
from agent_service.bus.topology import MAX_GIB, Executor, offered_gib, reserved_gib, set_up_within, size_found, topology
from agent_service.cli import output, whereabouts
from agent_service.cli.options import AsJson, Config
from agent_service.cli.services.alone import bus_at_hand
from agent_service.cli.services.serve import serve as served
from agent_service.history.plain import one_line
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import COMPRESSION, MODE, RESTART, Deviation, Topology, check_topology
from groundwork.nats.topology import set_up as create_all
from groundwork.service.commands import examples
from groundwork.service.errors import Misconfigured, NoRoom
from groundwork.service.exits import Exit
from schemas.values import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What should exist; without `replicas` or `max_gib` as it is. `change`: what differs too. `dry_run`: nothing."""

    replicas: int | None = None
    max_gib: float | None = None
    executors: Sequence[Executor] = ()
    shared: bool = False
    change: bool = False
    dry_run: bool = False

    async def sized(self, link: NatsLink) -> tuple[int, float, bool]:
        """Replicas, GiB, and whether that size was not asked for, so that less will do."""
        found, replicas, gib = await size_found(link)
        replicas = self.replicas or replicas
        chosen = self.max_gib is None and not found
        if chosen:
            gib = await offered_gib(link, lambda gib: reserved_gib(gib, shared=self.shared), replicas)
        return replicas, self.max_gib or gib, chosen

    def topology(self, replicas: int, gib: float) -> Topology:
        return topology(replicas=replicas, max_gib=gib, executors=self.executors, shared=self.shared)

    def heeds(self, finding: Deviation) -> bool:
        return self.max_gib is not None or (finding.kind, finding.field) != ("differs", "max_bytes")

    def changes(self, finding: Deviation) -> bool:
        return finding.harmless or (self.change and self.heeds(finding))


async def set_up(config: Path | None, asked: Asked, *, as_json: bool) -> Exit:
    """FAILED when something exists that differs. Raises Misconfigured, and what the bus raises."""
    loaded = settings.load(whereabouts.own(config))
    asked = replace(asked, shared=asked.shared or loaded.shared)
    async with bus_at_hand(loaded) as link:
        replicas, gib, chosen = await asked.sized(link)
        try:
            if asked.dry_run:
                found = await check_topology(link, asked.topology(replicas, gib))
            elif chosen:
                found, gib = await set_up_within(link, gib, partial(asked.topology, replicas))
            else:
                found = await create_all(link, asked.topology(replicas, gib), changes=asked.changes)
        except NoRoom as error:
            raise _without_room(error, asked, gib, chosen=chosen) from error
    found = [one for one in found if asked.heeds(one)]
    differs = any(finding.kind == "differs" for finding in found)
    aside = reserved_gib(gib, shared=asked.shared)
    if as_json:
        room = {"max_gib": gib, "reserved_gib": round(aside, 3)}
        told = {"ok": not differs, "dry_run": asked.dry_run, **room, "findings": [asdict(one) for one in found]}
        output.document(told)
    else:
        lines = [_line(one, asked) for one in found]
        if any(one.kind in ("created", "missing") for one in found):
            lines.append(_room_taken(gib, aside, asked, chosen=chosen))
        output.draw("\n".join(lines) or "everything is there already", wrap=False)
    return Exit.FAILED if differs and not asked.dry_run else Exit.OK


def _without_room(error: NoRoom, asked: Asked, gib: float, *, chosen: bool) -> Misconfigured:
    needed, less = "no size was found that fits", "name a small one with --max-gib N --change"
    if not chosen:
        aside = reserved_gib(gib, shared=asked.shared)
        needed, less = f"with --max-gib {gib:g} it sets {aside:.1f} GiB aside", "name less, with --change"
    remedy = f"{less}, or raise max_file_store of the server or the limits of the account"
    return Misconfigured(f"the NATS server has no room: {error}; {needed}: {remedy}")


def _room_taken(gib: float, aside: float, asked: Asked, *, chosen: bool) -> str:
    why = "as was asked for" if asked.max_gib else "as what is there"
    if chosen:
        why = "as usual" if gib == MAX_GIB else "for which there is room"
    more = "" if asked.max_gib else "; --max-gib N --change makes it another size"
    verb = "would set" if asked.dry_run else "sets"
    return f"the server {verb} {_size(aside)} aside for all of it ({gib:.3g} GiB of work, {why}){more}"


def _size(gib: float) -> str:
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.0f} MiB"


def _line(finding: Deviation, asked: Asked) -> str:
    should = f"{finding.field} is {finding.actual or 'not set'}, expected {finding.expected}"
    should = f"{finding.field} lacks {finding.expected}" if finding.lacks else should
    planned = asked.dry_run and finding.kind == "differs"
    did, told = _planned(finding, asked, should) if planned else _done(finding, should)
    return one_line(f"{did} {finding.what}{': ' if told else ''}{told}", 1000)


def _done(finding: Deviation, should: str) -> tuple[str, str]:
    match finding.kind:
        case "missing":
            return "would create", ""
        case "changed":
            then = f". Then {RESTART}" if finding.field == COMPRESSION else ""
            was = finding.actual or "not set"
            return "changed", f"{finding.field} is {finding.expected} now, and was {was}{then}"
        case "remade":
            return "remade", f"made anew, with its consumers ({finding.expected}): what lay there is said again"
        case "differs":
            return "differs", f"{should}. Left as it is: --change changes it"
    return finding.kind, ""


def _planned(finding: Deviation, asked: Asked, should: str) -> tuple[str, str]:
    if not asked.changes(finding):
        return "would leave", f"{should}; --change changes it"
    if finding.field == MODE:
        return "would remake", "it is made anew, and what lies there is said again"
    return "would change", should


TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Make the agent end that owns the bus, and go on in its place.")
]

commands = typer.Typer()


@commands.command(epilog=examples("agentic serve --config agentic.yaml"))
def serve(config: Config = None, take_over: TakeOver = False) -> None:
    """Exit codes: 69 when no bus answers; 78 when a setting has to be corrected first, and when another agent owns the
    bus or has taken it over; 1 for any other failure."""
    raise typer.Exit(served(config, take_over=take_over))


@commands.command(
    epilog=examples(
        "agentic setup --config agentic.yaml",
        "agentic setup --max-gib 0.5",
        "agentic setup --replicas 3 --change --dry-run",
        "agentic setup --executor weekday-executor=weekday",
    ),
)
def setup(
    config: Config = None,
    max_gib: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Most GiB of work that the server keeps, and as much of artifacts; as what exists, or else 10, "
            "and less where it has less room.",
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, max=5, help="On how many servers of a cluster it is kept; 1, or as what exists."),
    ] = None,
    executor: Annotated[
        list[str] | None,
        typer.Option(
            help="Also the consumer that hands an executor its requests; may be given several times.",
            metavar="NAME=ROUTE[,ROUTE]",
        ),
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Also the streams in which several agents and gateways share a store.")
    ] = False,
    change: Annotated[bool, typer.Option("--change", help="Change what exists otherwise, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    as_json: AsJson = False,
) -> None:
    """What exists is checked, and changed with --change. The server sets room for all of it aside at once: with 10 GiB
    some 22, with 0.5 some 1.3. How much is said."""
    try:
        executors = [Executor.read(text) for text in executor or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    asked = Asked(
        replicas=replicas, max_gib=max_gib, executors=executors, shared=shared, change=change, dry_run=dry_run
    )
    raise typer.Exit(output.awaited(set_up(config, asked, as_json=as_json)))
