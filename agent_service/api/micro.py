"""The NATS micro service (NATS ADR-32) of the agent, at `agentic-loop.<endpoint>`.

Requests, answers and errors are the JSON of the HTTP API; parameters of the path are fields of the request. The header
Nats-Service-Error-Code has the status, Retry-After the seconds to wait. Permissions of the bus decide who may ask, so
operators' endpoints must be denied to others. An endpoint serves one request at a time.

A server names callers of another account in the header `Nats-Request-Info`, which no client can forge there: such a
request has a reply subject that no client may use (nats-server, client.go; seen with 2.15).
"""

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from inspect import signature
from typing import Any

from nats.micro.request import Handler, Request, ServiceError
from nats.micro.service import Service, ServiceInfo
from pydantic import BaseModel, create_model

from agent_service.api.errors import REFUSED, ApiError, broken, refusal_of
from agent_service.api.requests import EVERY_SCOPE, Caller, read
from groundwork.nats.link import NatsLink
from groundwork.nats.micro_service import micro_service
from groundwork.service.machine import token_hex
from schemas import subjects
from schemas.envelope import TRACEPARENT
from schemas.fields import Id
from schemas.operations import OPERATIONS, Operation

INFO, OTHER_ACCOUNT_REPLY = "Nats-Request-Info", "_R_."
ABOUT = "A durable agent loop: accepts goals, and tells where runs stand."

Served = Callable[..., Awaitable[Any]]
Fresh = Callable[[], Awaitable[None]] | None
"""Waits until the store is current before runs are shown; None for a store that always is."""

log = logging.getLogger(__name__)


def served_by(services: Iterable[object], operation: Operation) -> Served:
    """The method with the operation's name. Raises LookupError if there is none."""
    for service in services:
        if served := getattr(service, operation.name, None):
            return served  # type: ignore[no-any-return] # by its name
    raise LookupError(f"nothing serves the operation {operation.name}")


def body_model(served: Served) -> type[BaseModel] | None:
    """The model of its parameter `request`; None if it takes no body."""
    parameter = signature(served).parameters.get("request")
    return parameter.annotation if parameter else None


class AgentService(Service):
    """Adds schemas to the service info on request, because making them takes a quarter of a second."""

    hints: Sequence[tuple[dict[str, str], Mapping[str, type[BaseModel]]]] = ()

    def info(self) -> ServiceInfo:
        for metadata, parts in self.hints:
            metadata |= {name: _schema_text(model) for name, model in parts.items()}  # in place
        return super().info()


async def serve_on_bus(
    link: NatsLink, services: Iterable[object], operations: Iterable[Operation] = OPERATIONS, *, fresh: Fresh = None
) -> Service:
    """Serves until the service is stopped or the link closed."""
    service = await micro_service(AgentService, link, name=subjects.SERVICE_AGENT, description=ABOUT)
    served = tuple(services)
    for operation in operations:
        if operation.endpoint:
            await _add(service, operation, served_by(served, operation), fresh if operation.shows_runs else None)
    return service


async def _add(service: AgentService, operation: Operation, served: Served, fresh: Fresh) -> None:
    parameters = signature(served).parameters
    fields = tuple({"run_id"} & parameters.keys())
    model = _request_model(operation, body_model(served) or BaseModel, fields)

    async def ask(request: Request) -> BaseModel:
        asked = read(model, request.data)
        given: dict[str, Any] = {name: getattr(asked, name) for name in fields}
        if "request" in parameters:
            given["request"] = asked
        if "caller" in parameters:
            given["caller"] = Caller(by=(who := _caller_name(request)), payer=who, transport="nats", scopes=EVERY_SCOPE)
        if "traceparent" in parameters:
            given["traceparent"] = (request.headers or {}).get(TRACEPARENT)
        if fresh:
            await fresh()
        answer: BaseModel = await served(**given)
        return answer

    metadata = {"format": "application/json"}
    service.hints = *service.hints, (metadata, {"request": model, "answer": signature(served).return_annotation})
    add = partial(service.add_endpoint, handler=_answering(ask), metadata=metadata)
    await add(name=operation.endpoint, subject=operation.subject)
    if operation.is_answered_by_each:
        of_each = {"name": operation.endpoint + subjects.EACH, "subject": operation.subject + subjects.EACH}
        await add(**of_each, queue_group=token_hex(8))


@cache
def _request_model(operation: Operation, body: type[BaseModel], ids: tuple[str, ...]) -> type[BaseModel]:
    fields: dict[str, Any] = dict.fromkeys(ids, (Id, ...))
    return create_model(f"{operation.name}_asked", __base__=body, __doc__=operation.does, **fields)


def _answering(ask: Callable[[Request], Awaitable[BaseModel]]) -> Handler:
    """Raises ServiceError for refusals, because the statistics count raised errors only."""

    async def handler(request: Request) -> None:
        try:
            answer = await ask(request)
        except REFUSED as error:
            refusal = refusal_of(error)
            refusal.log(request.subject, _caller_name(request))
            raise _error(request, refusal) from error
        except Exception as error:
            log.exception("a request on the bus failed", extra={"subject": request.subject})
            raise _error(request, broken()) from error
        await request.respond(answer.model_dump_json(by_alias=True).encode())

    return handler


def _error(request: Request, refusal: ApiError) -> ServiceError:
    body, headers = json.dumps(refusal.body()).encode(), refusal.headers
    request.respond_error = partial(request.respond_error, data=body, headers=headers)  # type: ignore[method-assign]
    return ServiceError(str(refusal.status), str(refusal))


@cache
def _schema_text(model: type[BaseModel]) -> str:
    return json.dumps(model.model_json_schema(), separators=(",", ":"))


def _caller_name(request: Request) -> str:
    """Such as `bus user ann of SHOP`; `bus` where NATS tells no more."""
    if not request._msg.reply.startswith(OTHER_ACCOUNT_REPLY):  # nats-py shows it nowhere else
        return "bus"
    info = json.loads((request.headers or {}).get(INFO, "{}"))
    account, user = info.get("acc"), info.get("user")
    named = f" user {user}" if user else ""
    return f"bus{named} of {account}" if account else "bus"
