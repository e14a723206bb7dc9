"""`python -m agent_service` is the command `agentic`."""

import sys
from collections.abc import Callable
from pathlib import Path

from groundwork.service import beginning


def main() -> None:
    """The entry point. Raises SystemExit."""
    beginning.run(lambda: _loaded(sys.argv[1:]))


def _loaded(arguments: list[str]) -> Callable[[], None]:
    """What the command line asks for. The service itself without the parts of the other commands (help, drawings, an
    HTTP client): they take 0.1 s to load, and it may have been killed with runs in hand."""
    match arguments:
        case ["serve"]:
            from agent_service.cli.serve import serve_or_complain

            return lambda: serve_or_complain(None)
        case ["serve", "--config", config]:
            from agent_service.cli.serve import serve_or_complain

            return lambda: serve_or_complain(Path(config))
    from agent_service.cli.main import main as run

    return run


if __name__ == "__main__":
    main()
