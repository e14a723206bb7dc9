"""`python -m agent_service` is the command `agentic`."""

import signal


def main() -> None:
    """The entry point. Raises SystemExit."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:  # Ctrl-C while the modules are loaded ends the process, without a traceback of imports
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from agent_service.cli.main import main as run

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
