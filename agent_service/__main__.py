"""`python -m agent_service` is the command `agentic`."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from groundwork.service import beginning
from groundwork.service.errors import Misconfigured

MAIN = "agent_service.cli.main:main"
SERVE = "agent_service.cli.services.serve:serve"


def main() -> None:
    """The entry point. Raises SystemExit."""
    beginning.run(lambda: _loaded(sys.argv[1:]))


def _loaded(arguments: list[str]) -> Callable[[], None]:
    """The service itself comes without the parts of other commands (help, drawings, an HTTP client): they take 0.1 s to
    load, and it may have been killed with runs in hand."""
    match arguments:
        case ["serve"] | ["serve", "--config", _]:
            return partial(_serve, beginning.loaded(SERVE), arguments)
    run: Callable[[], None] = beginning.loaded(MAIN)
    return run


def _serve(serve: Callable[..., int], arguments: list[str]) -> None:
    try:
        sys.exit(serve(Path(arguments[-1]) if len(arguments) > 1 else None, take_over=False))
    except Misconfigured:
        beginning.loaded(MAIN)(arguments)  # it says what is wrong as all commands do


if __name__ == "__main__":
    main()
