"""How callers come in: by HTTP, on a socket that listens already, and by the micro service on the bus.

FastAPI, uvicorn and what is built of them take as long to load as all the rest of the agent. What a crash interrupted
must not wait for that, so the composition root imports this module only when the runs go on.
"""

import asyncio
import socket
from collections.abc import Callable

from agent_service.adapters.http_api import create_app
from agent_service.adapters.http_itself import Readiness
from agent_service.adapters.http_server import http_server
from agent_service.adapters.nats_service import serve_on_bus
from agent_service.projections.run_files import RunFiles
from agent_service.runs import Runs
from agent_service.settings import AgentSettings
from groundwork.nats_link import NatsLink


async def let_in(
    group: asyncio.TaskGroup,
    listener: socket.socket,
    link: NatsLink,
    settings: AgentSettings,
    *,
    runs: Runs,
    files: RunFiles,
    readiness: Readiness,
    metrics: Callable[[], str],
) -> None:
    """Returns when they can come. Raises Misconfigured for settings that would open the API to the world."""
    server = http_server(create_app(runs, files, readiness, settings, metrics=metrics))
    group.create_task(server.serve(sockets=[listener]), name="http")
    await serve_on_bus(link, runs, trace_url=settings.trace_url)
