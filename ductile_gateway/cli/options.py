"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None, typer.Option(help="The configuration file. Without it: ./agentic.yaml, if there is one.")
]
ConfigNearby = Annotated[
    Path | None,
    typer.Option(help="The configuration file. Without it: ./agentic.yaml, or else ./.agentic/agentic.yaml."),
]
ToolsFolder = Annotated[
    Path | None,
    typer.Option("--tools", help="A folder of tools, or one tool, in place of those configured.", metavar="FOLDER"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Place = Annotated[str, typer.Argument(help="The backup file, or a folder for it.", metavar="FILE|FOLDER")]
