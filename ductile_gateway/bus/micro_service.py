"""The gateway's tools and status, as a NATS micro service (NATS ADR-32; `nats micro ls`)."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import nats.errors
from nats.micro.request import Request, ServiceError
from nats.micro.service import Service
from pydantic import ValidationError

from groundwork.nats.link import NatsLink
from groundwork.nats.micro_service import micro_service
from schemas import subjects
from schemas.catalog import Catalog
from schemas.status import GatewayPruned, GatewayStatus, PruneAsked


class Questions:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer_catalog(self, catalog: Callable[[], Catalog], *, executor: str) -> None:
        """A queue group of its own: in the usual one, another executor would answer in our place."""

        async def tell(request: Request) -> None:
            await request.respond(catalog().model_dump_json().encode())

        await self._service.add_endpoint(name="catalog", subject=subjects.CATALOG, handler=tell, queue_group=executor)

    async def answer_callbacks(self, flaw_of: Callable[[str], Awaitable[str]]) -> None:
        async def tell(request: Request) -> None:
            try:
                url = str(json.loads(request.data)["url"])
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise ServiceError("400", "a callback is asked for as {url}") from error
            await request.respond(json.dumps({"flaw": await flaw_of(url)}).encode())

        await self._service.add_endpoint(name="callback", subject=subjects.CALLBACK, handler=tell)

    async def answer_prune(self, prune: Callable[[bool], Awaitable[GatewayPruned]]) -> None:
        async def tell(request: Request) -> None:
            try:
                asked = PruneAsked.model_validate_json(request.data)
            except ValidationError as error:
                raise ServiceError("400", "it is asked as {dry_run}") from error
            await request.respond((await prune(asked.dry_run)).model_dump_json().encode())

        await self._service.add_endpoint(name="prune", subject=subjects.PRUNE, handler=tell)


@contextlib.asynccontextmanager
async def serve_questions(
    link: NatsLink, status: Callable[[], Awaitable[GatewayStatus]], *, each: str = ""
) -> AsyncIterator[Questions]:
    """Answer inside the context. `status` may not raise. `each`: the name of this gateway, where several answer."""

    async def tell(request: Request) -> None:
        await request.respond((await status()).model_dump_json().encode())

    about = "Carries tool requests of agents to their tools."
    service = await micro_service(Service, link, name=subjects.SERVICE_GATEWAY, description=about)
    try:
        await service.add_endpoint(name="status", subject=subjects.STATUS, handler=tell, queue_group=each or None)
        yield Questions(service)
    finally:
        with contextlib.suppress(nats.errors.Error):  # of a bus that is gone: that is told elsewhere
            await service.stop()
