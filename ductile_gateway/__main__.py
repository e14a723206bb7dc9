"""`python -m ductile_gateway` is the command `ductile-gateway`."""

from groundwork.service import beginning

PROGRAM = ("ductile_gateway.cli.main:main", "ductile_gateway.app:run")


def main() -> None:
    """Raises SystemExit."""
    beginning.run(*PROGRAM)


if __name__ == "__main__":
    main()
