"""The commands of the service: `agentic serve`, and `agentic setup` before it."""

from typing import Annotated

import typer

from agent_service.bus.topology import Executor
from agent_service.cli.options import AsJson, Config
from agent_service.cli.serve import serve as served
from agent_service.cli.setup import Asked, set_up
from agent_service.cli.working import awaited, log_only_what_is_not_said
from groundwork.service.commands import examples

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
    log_only_what_is_not_said()
    asked = Asked(
        replicas=replicas, max_gib=max_gib, executors=executors, shared=shared, change=change, dry_run=dry_run
    )
    raise typer.Exit(awaited(set_up(config, asked, as_json=as_json)))
