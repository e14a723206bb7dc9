"""`agentic setup`, `serve` and `ductile`. The last calls the gateway's command: only the gateway knows Ductile."""

import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import typer

from agent_service import app, settings
from agent_service.archive.access import bus_at_hand
from agent_service.bus.topology import OPERATORS_CHOICE, Executor, reserved_gib, set_up_within, size_found, topology
from agent_service.cli.options import CONFIG, local_command
from agent_service.cli.output import Output
from agent_service.history.text import one_line
from groundwork.nats.topology import MODE, Deviation, Topology, check_topology
from groundwork.nats.topology import set_up as create_all
from groundwork.service.commands import examples, flag, option
from groundwork.service.config_file import nearby
from groundwork.service.errors import Exit, Misconfigured, NoRoom

commands = typer.Typer()


@commands.command(epilog=examples("agentic serve --config agentic.yaml"))
def serve(
    config: Path | None = CONFIG,
    take_over: bool = flag("End the agent that owns the bus, and take its place.", "--take-over"),
) -> None:
    """Exit codes: 69 when no bus answers; 78 when a setting has to be corrected first, and when another agent owns the
    bus or has taken it over; 1 for any other failure."""
    raise typer.Exit(app.run(config, take_over=take_over))


@local_command(
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
) -> Coroutine[Any, Any, Output]:
    """Streams that exist are checked, and changed with --change. The server reserves the room for all of them at once:
    some 22 GiB with 10, some 1.3 with 0.5."""
    try:
        executors = [Executor.read(text) for text in executor or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    loaded = settings.load(nearby(config))
    wanted = partial(topology, executors=executors, shared=shared or loaded.shared)
    asked = {"max_bytes": max_gib, "num_replicas": replicas}
    return _set_up(loaded, wanted, asked, change=change, dry_run=dry_run)


async def _set_up(
    loaded: settings.AgentSettings,
    wanted: Callable[..., Topology],
    asked: Mapping[str, Any],
    *,
    change: bool,
    dry_run: bool,
) -> Output:
    """`asked` holds values of settings that are otherwise the operator's choice. The exit code is FAILED if something
    exists and differs. Raises Misconfigured and errors of the bus."""

    def heeds(one: Deviation) -> bool:
        return one.kind != "differs" or one.field not in OPERATORS_CHOICE or asked.get(one.field) is not None

    async with bus_at_hand(loaded) as link:
        exists, replicas, gib = await size_found(link)
        gib, fits = asked["max_bytes"] or gib, not (exists or asked["max_bytes"])
        sized = partial(wanted, replicas=asked["num_replicas"] or replicas)
        try:
            if dry_run:
                found = await check_topology(link, sized(max_gib=gib))
            elif fits:
                found, gib = await set_up_within(link, gib, lambda gib: sized(max_gib=gib))
            else:
                found = await create_all(link, sized(max_gib=gib), changes=lambda one: change and heeds(one))
        except NoRoom as error:
            needs = f"with --max-gib {gib:g} it sets {reserved_gib(sized(max_gib=gib)):.1f} GiB aside"
            remedy = "name less, with --change, or raise max_file_store of the server or the limits of the account"
            raise Misconfigured(f"the NATS server has no room: {error}; {needs}: {remedy}") from error
    found, aside = [one for one in found if heeds(one)], reserved_gib(sized(max_gib=gib))
    lines = [one_line(_line(one, change=change, dry_run=dry_run), 1000) for one in found]
    if any(one.kind in ("created", "missing") for one in found):
        more = "" if asked["max_bytes"] else "; --max-gib N --change makes it another size"
        sets = "would set at most" if dry_run else "sets"
        lines.append(f"the server {sets} {aside:.3g} GiB aside for all of it ({gib:.3g} GiB of work){more}")
    differs = any(one.kind == "differs" for one in found)
    facts = {"ok": not differs, "dry_run": dry_run, "max_gib": gib, "reserved_gib": round(aside, 3)}
    return Output(
        facts | {"findings": [asdict(one) for one in found]},
        "\n".join(lines) or "everything is there already",
        Exit.FAILED if differs and not dry_run else Exit.OK,
    )


_TEXTS = {
    "created": "created {0.what}",
    "missing": "would create {0.what}",
    "changed": "changed {0.what}: {0.field} is {0.expected} now, and was {1}",
    "remade": "remade {0.what}: made anew, with its consumers ({0.expected}): what lay there is said again",
    "would remake": "would remake {0.what}: what lies there is said again",
    "would change": "would change {0.what}: {0.field} is {1}, expected {0.expected}",
    "differs": "differs {0.what}: {0.field} is {1}, expected {0.expected}. Left as it is: --change changes it",
}


def _line(one: Deviation, *, change: bool, dry_run: bool) -> str:
    kind = str(one.kind)
    if kind == "differs" and dry_run and change:
        kind = "would remake" if one.field == MODE else "would change"
    return _TEXTS[kind].format(one, one.actual or "not set")


_GATEWAY = "from ductile_gateway.cli.main import main; main(name='agentic')"
"""Makes errors and help show the name of the command that was typed."""


@commands.command(
    "ductile",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def ductile(context: typer.Context) -> None:
    command = [sys.executable, "-P", "-c", _GATEWAY, "ductile", *context.args]
    raise typer.Exit(subprocess.call(command))  # noqa: S603 - our own program
