"""Several gateways as processes of one bus, each as on a machine of its own, and the calls that they are asked for."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats.errors
from nats.js.errors import APIError

from agent_service.bus.topology import topology
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from schemas import subjects
from schemas.events import ToolResult
from tests.gateway.on_nats import all_acknowledged, results, send
from tests.gateway.parts import a_request
from tests.gateway.served import Gateway
from tests.kit.waiting import until

READY_WITHIN_S = 40.0
BY_OTHERS_WITHIN_S = 40.0
"""What a gateway leaves that is killed is done by the others far sooner; machines may be busy."""

Process = subprocess.Popen[bytes]


@dataclass(slots=True)
class Fleet:
    """`folder` holds a folder for each gateway, the keys of all, and what plugins write."""

    folder: Path
    link: NatsLink
    urls: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    gateways: dict[str, Gateway] = field(default_factory=dict)

    @property
    def marks(self) -> Path:
        return self.folder / "marks"

    @contextlib.contextmanager
    def serving(self, name: str, **settings: Any) -> Iterator[Process]:
        """A gateway; killed in the end, if it still lives. The same name again is the same machine."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        ours = {"store": "jetstream", "cache": str(home / "copy"), "keys_file": str(self.folder / "gateway.keys")}
        every = ours | self.settings | settings
        self.gateways[name] = gateway = Gateway(home, *self.urls, marks=self.marks, **every)
        with gateway.serving() as process:
            yield process

    async def ready(self, name: str, times: int = 1) -> None:
        gateway = self.gateways[name]
        await until(
            lambda: gateway.starts() >= times,
            within_s=READY_WITHIN_S,
            otherwise=lambda: gateway.log.read_text()[-2000:],
        )

    async def asking(self, number: int) -> None:
        """Wait until so many gateways have asked for requests."""

        async def asked() -> bool:
            info = await self.link.jetstream.consumer_info(subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS)
            return (info.num_waiting or 0) >= number

        await until(asked, within_s=READY_WITHIN_S)

    async def record(self, *, step: int, file: str = "ran", held: bool = True) -> None:
        """Ask for a write that adds a line to a file, and if it is `held` ends once it was let `go`."""
        wait = {"wait_for": str(self.marks / "go")} if held else {}
        payload = {"file": str(self.marks / file)} | wait
        await send(self.link, a_request("record", payload, tool="probe", step=step), "probe")

    def go(self) -> None:
        (self.marks / "go").touch()

    def ran(self, file: str = "ran") -> list[str]:
        """The calls that were run, each time."""
        path = self.marks / file
        return path.read_text().splitlines() if path.exists() else []

    def began(self, name: str) -> list[str]:
        """The calls that a gateway has on its machine."""
        return [str(path) for path in (self.folder / name / "copy").glob("*/calls/*/began")]

    async def results(self, number: int) -> list[ToolResult]:
        """Once all requests are settled and there are so many."""

        async def settled() -> bool:
            with contextlib.suppress(nats.errors.Error, APIError):  # of a bus without a leader
                return await all_acknowledged(self.link) and len(await results(self.link)) >= number
            return False

        await until(settled, within_s=BY_OTHERS_WITHIN_S, otherwise=self._last_words)
        found = await results(self.link)
        assert len(found) == number
        return found

    def _last_words(self) -> str:
        return "\n".join(gateway.log.read_text()[-1500:] for gateway in self.gateways.values())


@asynccontextmanager
async def fleet(folder: Path, link: NatsLink, *urls: str, replicas: int = 1, **settings: Any) -> AsyncIterator[Fleet]:
    """On a bus that was set up for several."""
    await create_missing(link, topology(max_gib=1, shared=True, replicas=replicas))
    await asyncio.to_thread((folder / "marks").mkdir)
    yield Fleet(folder, link, urls, settings)


def ending(result: ToolResult) -> str:
    """The status, or the class of the error."""
    return result.error.error_class if result.error else result.status
