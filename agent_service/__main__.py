"""`python -m agent_service` is the command `agentic`."""

from groundwork.service import program

PROGRAM = ("agent_service.cli.main:main", "agent_service.app:run")


def main() -> None:
    """Raises SystemExit."""
    program.run(*PROGRAM)


if __name__ == "__main__":
    main()
