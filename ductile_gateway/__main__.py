"""`python -m ductile_gateway` is the command `ductile-gateway`."""

import sys
from collections.abc import Callable
from pathlib import Path

from groundwork.service import beginning


def main() -> None:
    beginning.run(lambda: _loaded(sys.argv[1:]))


def _loaded(arguments: list[str]) -> Callable[[], None]:
    """The service is loaded without the other commands, which take long to load: it may have been killed with calls in
    hand."""
    match arguments:
        case ["serve"]:
            config = None
        case ["serve", "--config", file]:
            config = Path(file)
        case _:
            from ductile_gateway.cli.main import main as run

            return run
    from ductile_gateway.cli.serve import serve

    return lambda: sys.exit(serve(config))


if __name__ == "__main__":
    main()
