"""Calls an agent from a program: `Client`, and `AsyncClient` for programs with an event loop. See docs/API.md.

It needs only the standard library, httpx2, pydantic, `schemas` and, for the bus, nats.
"""

from agentic_client.clients import AsyncClient as AsyncClient
from agentic_client.clients import Client as Client
from agentic_client.errors import AgenticError as AgenticError
from agentic_client.errors import Broken as Broken
from agentic_client.errors import Conflict as Conflict
from agentic_client.errors import Gone as Gone
from agentic_client.errors import Invalid as Invalid
from agentic_client.errors import NotAllowed as NotAllowed
from agentic_client.errors import NotFound as NotFound
from agentic_client.errors import NotNow as NotNow
from agentic_client.errors import StillRunning as StillRunning
from agentic_client.errors import TryAgain as TryAgain
from agentic_client.errors import Unreachable as Unreachable
from agentic_client.views import Accepted as Accepted
from agentic_client.views import Asks as Asks
from agentic_client.views import Command as Command
from agentic_client.views import Event as Event
from agentic_client.views import File as File
from agentic_client.views import Run as Run
from agentic_client.views import RunLine as RunLine
from agentic_client.views import RunPage as RunPage
from agentic_client.views import Tool as Tool
