"""`python -m ductile_gateway` is the command `ductile-gateway`."""

from groundwork.service import program

PROGRAM = ("ductile_gateway.cli.main:main", "ductile_gateway.app:run")


def main() -> None:
    """Raises SystemExit."""
    program.run(*PROGRAM)


if __name__ == "__main__":
    main()
