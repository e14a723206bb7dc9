"""The stack to try things in, and examples to begin with."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agent_service.cli import output
from agent_service.cli.local import PANEL_TRY, Folder, awaited
from agent_service.cli.options import AsJson, Config
from agent_service.cli.options import examples as shown

commands = typer.Typer()


@commands.command(
    rich_help_panel=PANEL_TRY,
    epilog=shown("agentic dev", "agentic dev --tools tools", "agentic dev --dir /tmp/try --http-port 0"),
)
def dev(
    folder: Folder = Path(".agentic"),
    http_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the HTTP API; 0 takes a free one.")] = 8700,
    nats_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the NATS server; 0 takes a free one.")] = 0,
    script: Annotated[
        Path | None, typer.Option(help="A script for the scripted model.", exists=True, dir_okay=False, metavar="FILE")
    ] = None,
    tools: Annotated[
        list[Path] | None,
        typer.Option(
            "--tools",
            "--plugins",
            help="Further tools: a folder of plugin folders, which is looked at again whenever it changes.",
            exists=True,
            file_okay=False,
            metavar="FOLDER",
        ),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run NATS, both services and the demo tools here, until Ctrl-C.

    Of the configuration file everything counts but where things are kept and where services listen. Without a model
    in it, Claude decides if ANTHROPIC_API_KEY is set and no script is given, else a scripted model, which needs no key.
    """
    from agent_service.workbench.dev import PLUGINS, DevOptions
    from agent_service.workbench.dev_command import model_here, run_dev
    from agent_service.workbench.dev_settings import taken_nearby

    taken = taken_nearby(config)
    options = DevOptions(
        folder=folder,
        http_port=http_port,
        nats_port=nats_port,
        script=script,
        plugins=(*(path.absolute() for path in tools or ()), PLUGINS),
        agent={} if taken.names_a_model() else model_here(script, os.environ),
        taken=taken,
    )
    raise typer.Exit(awaited(run_dev(options, as_json=as_json)))


@commands.command(rich_help_panel=PANEL_TRY, epilog=shown("agentic example", "agentic example home-automation"))
def example(
    name: Annotated[str | None, typer.Argument(help="Which one; without it they are listed.")] = None,
    into: Annotated[
        Path, typer.Option("--dir", help="Where the copy is made.", metavar="FOLDER", file_okay=False)
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """List the examples, or copy one to where you are: a folder with a page, settings, tools and a script."""
    from agent_service.workbench.examples import NoSuchExample, copy, examples

    if name is None:
        found = tuple(examples())
        lines = "\n".join(f"{one.name:18}  {one.title}" for one in found)
        output.tell([asdict(one) for one in found], lines, as_json=as_json)
        return
    try:
        made = copy(name, into)
    except NoSuchExample as error:
        raise typer.BadParameter(str(error)) from error
    lines = f"{made} is made. Its page says what to do: {made / 'README.md'}\n\n  cd {made} && agentic dev"
    output.tell({"folder": str(made)}, lines, as_json=as_json)
