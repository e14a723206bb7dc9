"""The command `agentic`: its commands put together."""

from collections.abc import Sequence
from typing import NoReturn

from agent_service.cli.commands import Agentic
from groundwork.service import commands

NAME = "agentic"

app = commands.program(
    NAME,
    Agentic,
    """Durable, goal-directed runs on a NATS bus.

    Begin with `agentic dev`, or `agentic init`. Exit codes are in docs/CONFIGURATION.md.

    What messages name as docs/… is at https://github.com/agentic-loop/agentic-loop/tree/main/docs
    """,
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command line. Raises SystemExit; unknown errors stay."""
    commands.run(app, NAME, arguments)
