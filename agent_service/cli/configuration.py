"""Which configuration file a command uses when none is named."""

from pathlib import Path

OWN = Path("agentic.yaml")
OF_DEV = Path(".agentic") / "agentic.yaml"


def own(named: Path | None) -> Path | None:
    """For what starts or sets up something: the named file or ./agentic.yaml. None where neither is."""
    return _first(named, OWN)


def nearby(named: Path | None) -> Path | None:
    """For what only looks: also the file of `agentic dev` in this folder."""
    return _first(named, OWN, OF_DEV)


def told(path: Path | None) -> str:
    """The file for people."""
    return str(path) if path else "no file: the defaults and the environment"


def _first(named: Path | None, *found: Path) -> Path | None:
    return named or next((path for path in found if path.is_file()), None)
