"""Prints the benchmark's figures as JSON."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
import uvloop

from tests.bench.bench import measure


def bench(
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, help="Runs at a time; may be given several times. [1, 32, 256]")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="About how long to measure each.")] = 10.0,
    sync_interval: Annotated[
        str, typer.Option(help="How often NATS syncs: `always`, or a time such as 100ms.")
    ] = "always",
) -> None:
    """Measures the whole stack on this machine."""
    with TemporaryDirectory(prefix="agentic-bench-") as folder:
        figures = uvloop.run(
            measure(Path(folder), concurrency or (1, 32, 256), seconds=seconds, sync_interval=sync_interval)
        )
    typer.echo(json.dumps(figures, indent=2))


if __name__ == "__main__":
    typer.run(bench)
