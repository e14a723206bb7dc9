"""The stores of a gateway under test: how each kind is opened, and opened again."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from agent_service.bus.topology import topology
from ductile_gateway.store import open_store
from ductile_gateway.store.shared.opening import open_shared
from ductile_gateway.store.stores import Stores
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from tests.ledger.crowd import Crowd, Party

Opener = Callable[[], AbstractAsyncContextManager[Stores]]
"""Opens the same stores each time it is called; they are closed in between."""
RUN_BYTES = 100


def embedded(folder: Path) -> Opener:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Stores]:
        async with open_store(folder) as file:
            yield Stores.embedded(file, folder=folder, run_bytes=RUN_BYTES)

    return opened


def in_memory(folder: Path) -> Opener:
    crowd = Crowd(folder)
    return lambda: crowd.gateway("a", run_bytes=RUN_BYTES)


def on_a_bus(folder: Path, link: NatsLink) -> Opener:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Stores]:
        await ledger_stream(link)
        async with joined(folder, link, "a", run_bytes=RUN_BYTES) as stores:
            yield stores

    return opened


@asynccontextmanager
async def joined(
    folder: Path, link: NatsLink, name: str, *, live: set[str] | None = None, run_bytes: int = 1 << 30
) -> AsyncIterator[Stores]:
    """A gateway of this name, with its copy in a folder of its own."""
    (own := folder / name).mkdir(exist_ok=True)
    members = Party(name, {name} if live is None else live)
    async with open_shared(own, link, members, run_bytes=run_bytes) as (_, stores):
        yield stores


async def ledger_stream(link: NatsLink) -> None:
    """The stream of facts, as the setup makes it."""
    await create_missing(link, topology(replicas=1, max_gib=1, shared=True))
