"""`python -m agent_service` is the command `agentic`."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

from groundwork.service import garbage


def main() -> None:
    """The entry point. Raises SystemExit."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:  # Ctrl-C while the modules are loaded ends the process, without a traceback of imports
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with garbage.uncollected():
        run = _loaded(sys.argv[1:])
    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


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
