"""The tool catalog, told to whoever asks: a NATS micro service (NATS ADR-32), so that `nats micro ls` shows it."""

import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import PackageNotFoundError, version

from nats.micro import add_service
from nats.micro.request import Request

from groundwork.nats_link import NatsLink
from schemas import subjects
from schemas.catalog import Catalog

DISTRIBUTION = "agentic-loop"


@contextlib.asynccontextmanager
async def serve_catalog(link: NatsLink, catalog: Catalog) -> AsyncIterator[None]:
    """Answer on the catalog's subject inside the context."""
    body = catalog.model_dump_json().encode()

    async def answer(request: Request) -> None:
        await request.respond(body)

    service = await add_service(
        link.client,
        name=subjects.SERVICE_GATEWAY,
        version=_version(),
        description="Carries tool requests of agents to their tools.",
        metadata={"catalog_revision": catalog.revision},
    )
    try:
        await service.add_endpoint(name="catalog", subject=subjects.CATALOG, handler=answer)
        yield
    finally:
        await service.stop()


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # run from a checkout
        return "0.0.0"
