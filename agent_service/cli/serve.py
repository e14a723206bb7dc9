"""`agentic serve` runs the agent until it is told to stop."""

from functools import partial
from pathlib import Path

from agent_service import app, settings
from agent_service.history.log_line import FOR_MACHINES
from groundwork.service import serving
from groundwork.service.config_file import nearby
from groundwork.service.errors import Exit


def serve(config: Path | None, *, take_over: bool = False) -> Exit:
    """Raises Misconfigured for unusable settings: the log is not set up before they are read."""
    loaded = settings.load(nearby(config))
    work = partial(app.serve, loaded, take_over=take_over)
    return serving.serve(loaded.log, loaded.secrets(), work, aside=FOR_MACHINES)
