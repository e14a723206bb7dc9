"""`agentic serve`: the agent until it is told to stop."""

from functools import partial
from pathlib import Path

from agent_service import app, settings
from agent_service.cli import whereabouts
from agent_service.history.log_line import FOR_MACHINES
from groundwork.service import serving
from groundwork.service.errors import Exit


def serve(config: Path | None, *, take_over: bool = False) -> Exit:
    """Raises Misconfigured for settings that cannot be used: until they are read there is no log to say it in."""
    loaded = settings.load(whereabouts.own(config))
    work = partial(app.serve, loaded, take_over=take_over)
    return serving.serve(loaded.log, loaded.secrets(), work, aside=FOR_MACHINES)
