"""Which version of the project is installed here."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "agentic-loop"


def installed_version() -> str:
    """0.0.0 in a checkout that is not installed: a NATS micro service needs a number."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0.0.0"
