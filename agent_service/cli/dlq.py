"""The commands on dead letters. Each loads what it works with when it starts, so that other commands stay quick."""

from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from agent_service.cli import output
from agent_service.cli.options import AsJson, ConfigNearby
from groundwork.service.commands import examples

commands = typer.Typer()

Number = Annotated[int, typer.Argument(min=1, help="As `agentic dlq ls` shows it.", metavar="ID")]
Numbers = Annotated[list[int], typer.Argument(min=1, help="As `agentic dlq ls` shows them.", metavar="ID")]


@commands.callback(invoke_without_command=True)
def about(context: typer.Context) -> None:
    """Messages that could not be handled: look at them, send them again, drop them.

    Those of both services, straight from the bus: no service has to run.
    """
    if context.invoked_subcommand is None:
        output.draw(context.get_help())


@commands.command(epilog=examples("agentic dlq ls", "agentic dlq ls --all --json"))
def ls(
    everything: Annotated[bool, typer.Option("--all", help="Also those that were retried or dropped.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="The most to list, newest first.")] = 50,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """List the dead letters that nobody has dealt with, newest first."""
    from agent_service.cli import dead_letters

    _run(dead_letters.ls(config, everything=everything, limit=limit, as_json=as_json))


@commands.command(epilog=examples("agentic dlq show 17"))
def show(number: Number, config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Show one: where it came from, why it was refused, its headers and its body."""
    from agent_service.cli import dead_letters

    _run(dead_letters.show(config, number, as_json=as_json))


@commands.command(epilog=examples("agentic dlq retry 17", "agentic dlq retry 17 18 19"))
def retry(numbers: Numbers, config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Send the refused message again, as it was, to where it was sent: once its cause is mended.

    It goes out once, under an id of its own and with its dedupe_key unchanged; that you did it is recorded.
    """
    from agent_service.cli import dead_letters

    _run(dead_letters.retry(config, numbers, as_json=as_json))


@commands.command(epilog=examples("agentic dlq drop 17"))
def drop(numbers: Numbers, config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Delete a dead letter; that you did it is recorded, and `ls --all` shows it."""
    from agent_service.cli import dead_letters

    _run(dead_letters.drop(config, numbers, as_json=as_json))


def _run(work: Coroutine[Any, Any, None]) -> None:
    import asyncio

    from groundwork.service import json_log

    json_log.set_up("ERROR", "text", redact=tuple)  # what the parts below log, the command says in its own words
    asyncio.run(work)
