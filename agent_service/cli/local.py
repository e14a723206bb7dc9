"""The commands that run something on this machine, or look at its files.

What they need is imported where they start, so that the commands on runs stay quick.
"""

import json
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from agent_service.cli import output
from agent_service.cli.looking import tell_why
from agent_service.cli.options import URL, AsJson, Config, ConfigNearby, Token, Url, examples, named

PANEL_FILES = "Records and prerequisites, on this machine"
PANEL_SERVICES = "Services"
PANEL_TRY = "To try it out"

T = TypeVar("T")

commands = typer.Typer()

RunToLookAt = Annotated[
    str | None,
    typer.Option("--run", help="Ask the agent about this run instead.", callback=named, metavar="RUN"),
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Make the agent end that owns the bus, and go on in its place.")
]
Folder = Annotated[Path, typer.Option("--dir", help="Where everything is kept.", metavar="FOLDER")]


@commands.command(
    rich_help_panel=PANEL_FILES,
    epilog=examples(
        "agentic doctor",
        "agentic doctor --config agentic.yaml --deep",
        "agentic doctor --settings",
        "agentic doctor --run last",
    ),
)
def doctor(
    config: ConfigNearby = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read the whole database for damage.")] = False,
    settings: Annotated[bool, typer.Option("--settings", help="Print the settings in force, without secrets.")] = False,
    run: RunToLookAt = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """Check everything that the agent needs, one line each, with the remedy. Exit code 1 when something is wrong.

    It changes nothing: no file, no stream, no message. With --run it looks at one run instead, as `agentic why` does.
    """
    if run is not None:
        tell_why(run, as_json=as_json, url=url, token=token, config=config)
        return
    from agent_service.cli.doctor import report

    if settings:
        output.tell(*report.settings_in_force(config), as_json=as_json)
        return
    log_only_what_is_not_said()
    raise typer.Exit(awaited(report.report(config, deep=deep, as_json=as_json)))


@commands.command(
    rich_help_panel=PANEL_FILES, epilog=examples("agentic du", "agentic du run_01JD", "agentic du --json")
)
def du(
    run: Annotated[str | None, typer.Argument(help="Only what this run takes.", metavar="RUN")] = None,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """Say what everything takes on the disk: by kind, per run, and on the bus. It changes nothing."""
    from agent_service.cli.room_used import used

    awaited(used(run, config, as_json=as_json))


@commands.command(rich_help_panel=PANEL_SERVICES, epilog=examples("agentic serve --config agentic.yaml"))
def serve(config: Config = None, take_over: TakeOver = False) -> None:
    """Run the agent, until SIGTERM or Ctrl-C. Its log is on standard error.

    Exit codes: 69 when no bus answers; 78 when a setting has to be corrected first, and when another agent owns the
    bus or has taken it over; 1 for any other failure.
    """
    from agent_service.cli.serve import serve as served

    raise typer.Exit(served(config, take_over=take_over))


@commands.command(
    rich_help_panel=PANEL_SERVICES,
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
    """Create the streams, consumers and buckets on the NATS server. What exists is checked, and changed with --change.

    The server sets room for all of it aside at once: with 10 GiB some 22, with 0.5 some 1.3. How much is said.
    """
    from agent_service.bus.topology import Executor
    from agent_service.cli.setup import Asked, set_up

    try:
        executors = [Executor.read(text) for text in executor or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    log_only_what_is_not_said()
    asked = Asked(
        replicas=replicas, max_gib=max_gib, executors=executors, shared=shared, change=change, dry_run=dry_run
    )
    raise typer.Exit(awaited(set_up(config, asked, as_json=as_json)))


@commands.command(
    rich_help_panel=PANEL_TRY, epilog=examples("agentic demo", "agentic demo --chaos", "agentic demo --z3")
)
def demo(
    chaos: Annotated[bool, typer.Option("--chaos", help="Kill the agent in mid-run and see the run go on.")] = False,
    z3: Annotated[bool, typer.Option("--z3", help="Show a tool that has to look things up before it answers.")] = False,
    folder: Folder = Path(".demo"),
    as_json: AsJson = False,
) -> None:
    """Show one run from goal to end on a real NATS server, then stop everything that was started."""
    from agent_service.workbench.demo import run_demo
    from agent_service.workbench.solving_demo import run_solving_demo

    if chaos and z3:
        raise typer.BadParameter("choose one of --chaos and --z3")
    if z3:
        raise typer.Exit(awaited(run_solving_demo(folder, as_json=as_json)))
    raise typer.Exit(awaited(run_demo(folder, chaos=chaos, as_json=as_json)))


@commands.command(
    rich_help_panel=PANEL_TRY,
    epilog=examples(
        "agentic bench --concurrency 32 --seconds 20",
        "agentic bench --concurrency 8 --watchers 0 --watchers 1 --watchers 100 --watchers 500",
    ),
)
def bench(
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, help="Runs at a time; may be given several times. [1, 32, 256]")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="About how long to measure each.")] = 10.0,
    sync_interval: Annotated[
        str, typer.Option(help="How often NATS syncs: `always`, or a time such as 100ms.")
    ] = "always",
    otlp: Annotated[
        str | None, typer.Option(help="Send traces and metrics there meanwhile.", metavar="URL", show_default=False)
    ] = None,
    watchers: Annotated[
        list[int] | None,
        typer.Option(
            min=0, max=600, help="Measure with so many watchers of all runs, too; may be given several times."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the whole stack on this machine. The figures are JSON: in many lines, or in one with --json."""
    from tempfile import TemporaryDirectory

    import uvloop

    from agent_service.workbench.bench import measure

    with TemporaryDirectory(prefix="agentic-bench-") as folder:
        load = partial(measure, Path(folder), concurrency or (1, 32, 256), seconds=seconds)
        figures = uvloop.run(load(sync_interval=sync_interval, otlp=otlp, watchers=watchers or ()))
    output.tell(figures, json.dumps(figures, indent=2), as_json=as_json)


@commands.command(
    "eval",
    rich_help_panel=PANEL_TRY,
    epilog=examples(
        "agentic eval",
        "agentic eval --config agentic.yaml --scenario 'injection-*'",
        "agentic eval --folder my-scenarios --record cassettes",
        "agentic eval --folder my-scenarios --replay cassettes",
    ),
)
def evaluate(
    scenario: Annotated[
        list[str] | None, typer.Option(help="Only these: a name, or a pattern like 'injection-*'.", metavar="NAME")
    ] = None,
    folder: Annotated[
        list[Path] | None, typer.Option(help="A folder with scenarios of your own, besides.", metavar="FOLDER")
    ] = None,
    config: Config = None,
    jobs: Annotated[int, typer.Option(min=1, help="Scenarios at a time.")] = 4,
    record: Annotated[
        Path | None, typer.Option(help="Keep what the model answers in this folder.", metavar="FOLDER")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Answer from what was recorded there, without a model.", metavar="FOLDER")
    ] = None,
    trail: Annotated[
        Path | None, typer.Option(help="Write the paper trail of every run there.", metavar="FOLDER")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play scenarios against the configured model and print what came of them. Exit code 1 when one did not pass.

    With a real model this costs money. Nothing is needed but the model: bus, tools, persons and time are played.
    """
    from agent_service.workbench.evaluate import Order, run

    if record and replay:
        raise typer.BadParameter("a replay asks no model, so there is nothing to record: give --record or --replay")
    order = Order(
        names=tuple(scenario or ()),
        folders=tuple(folder or ()),
        config=config,
        jobs=jobs,
        record=record,
        replay=replay,
        trail=trail,
    )
    log_only_what_is_not_said()
    raise typer.Exit(awaited(run(order, as_json=as_json)))


def awaited(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


def log_only_what_is_not_said() -> None:
    """What the parts below log, the command says in its own words; a failure beyond that is still told."""
    from groundwork.service import json_log

    json_log.set_up("ERROR", "text", redact=tuple)
