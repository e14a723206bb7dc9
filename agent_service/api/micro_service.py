"""The agent on the bus as a NATS micro service (NATS ADR-32), which answers at `agentic-loop.<endpoint>`.

Requests, answers and errors are the JSON of the HTTP API; the header Nats-Service-Error-Code has an error's number.
The permissions of the bus decide who may ask. An endpoint takes one request at a time.
"""

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache, partial

from nats.micro.request import Handler, Request, ServiceError
from nats.micro.service import Service
from pydantic import BaseModel

from agent_service.api import requests
from agent_service.api.desk import Desk, Fresh, Switch, SwitchView, at_once
from agent_service.api.refusals import REFUSED, Refusal, broken, refusal_of
from agent_service.api.requests import (
    AnswerRequest,
    ApprovalRequest,
    CallbackAnswer,
    CancelAnswer,
    CancelRequest,
    Nothing,
    SignalAnswer,
    SignalRequest,
    StopRequest,
    WakeAnswer,
    WakeRequest,
)
from agent_service.trust.signing import Signing
from agent_service.views.run import RunView
from groundwork.nats.link import NatsLink
from groundwork.nats.micro_service import asker, micro_service
from schemas import subjects
from schemas.envelope import TRACEPARENT
from schemas.fields import Id
from schemas.signing import AgentKeys, KeysWanted

log = logging.getLogger(__name__)


class StatusCall(BaseModel):
    """Where does the run stand?"""

    run_id: Id


class StandingCall(StatusCall):
    """Where does the run stand? `brief`: its status is enough, which costs no look into its journal."""

    brief: bool = False


class CallbackCall(StatusCall):
    """Where did the run ask to have its ending sent? For the gateway alone."""


class CancelCall(CancelRequest):
    """Cancel the run."""

    run_id: Id


class ApproveCall(ApprovalRequest):
    """Approve or reject what the run asks for."""

    run_id: Id


class AnswerCall(AnswerRequest):
    """Answer the question of the run, or its escalation."""

    run_id: Id


class SignalCall(SignalRequest):
    """Say anything to the run."""

    run_id: Id


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`asked` and `answered` are what `nats micro info` tells of it."""

    name: str
    asked: type[BaseModel]
    answered: type[BaseModel]
    handler: Handler


async def serve_on_bus(
    link: NatsLink, desk: Desk, signing: Signing, switch: Switch, *, fresh: Fresh = at_once
) -> Service:
    """Answer until the service is stopped, or the link closed. `fresh` is waited for before runs are shown."""
    about = "A durable agent loop: accepts goals, and tells where runs stand."
    service = await micro_service(link, name=subjects.SERVICE_AGENT, description=about)
    endpoints = (*_endpoints(desk, fresh), _keys(signing), *_switches(switch))
    for endpoint in endpoints:
        await add(service, endpoint)
    return service


async def add(service: Service, endpoint: Endpoint) -> None:
    await service.add_endpoint(
        name=endpoint.name,
        subject=f"{subjects.SERVICE_AGENT}.{endpoint.name}",
        handler=endpoint.handler,
        metadata={"format": "application/json", "request": _hint(endpoint.asked), "answer": _hint(endpoint.answered)},
    )


def _endpoints(desk: Desk, fresh: Fresh) -> tuple[Endpoint, ...]:
    async def wake(request: Request) -> BaseModel:
        asked, traceparent = requests.read(WakeRequest, request.data), (request.headers or {}).get(TRACEPARENT)
        who = asker(request)
        return await desk.wake(asked, by=who, payer=who, transport="nats", traceparent=traceparent)

    async def status(request: Request) -> BaseModel:
        call = requests.read(StandingCall, request.data)
        await fresh()
        return await (desk.brief if call.brief else desk.status)(call.run_id)

    async def callback(request: Request) -> BaseModel:
        return await desk.callback(requests.read(CallbackCall, request.data).run_id)

    async def cancel(request: Request) -> BaseModel:
        call = requests.read(CancelCall, request.data)
        return await desk.cancel(call.run_id, call, by=asker(request))

    async def signal(form: type[ApproveCall | AnswerCall | SignalCall], request: Request) -> BaseModel:
        call = requests.read(form, request.data)
        return await desk.signal(call.run_id, call, by=asker(request))

    return (
        Endpoint(name="wake", asked=WakeRequest, answered=WakeAnswer, handler=answering(wake)),
        Endpoint(name="status", asked=StandingCall, answered=RunView, handler=answering(status)),
        Endpoint(name="callback", asked=CallbackCall, answered=CallbackAnswer, handler=answering(callback)),
        Endpoint(name="cancel", asked=CancelCall, answered=CancelAnswer, handler=answering(cancel)),
        *(
            Endpoint(name=name, asked=form, answered=SignalAnswer, handler=answering(partial(signal, form)))
            for name, form in (("approve", ApproveCall), ("answer", AnswerCall), ("signal", SignalCall))
        ),
    )


def _keys(signing: Signing) -> Endpoint:
    async def keys(request: Request) -> BaseModel:
        if requests.read(KeysWanted, request.data or b"{}").progress:
            signing.want_progress()
        return signing.public_keys()

    return Endpoint(name="keys", asked=KeysWanted, answered=AgentKeys, handler=answering(keys))


def _switches(switch: Switch) -> tuple[Endpoint, ...]:
    """For operators alone: the bus must deny them to others."""

    async def stop(request: Request) -> BaseModel:
        return await switch.stop(requests.read(StopRequest, request.data), by=asker(request))

    async def go_on(request: Request) -> BaseModel:
        return await switch.go_on(requests.read(Nothing, request.data), by=asker(request))

    return (
        Endpoint(name="stop-all", asked=StopRequest, answered=SwitchView, handler=answering(stop)),
        Endpoint(name="go-on", asked=Nothing, answered=SwitchView, handler=answering(go_on)),
    )


def answering(ask: Callable[[Request], Awaitable[BaseModel]]) -> Handler:
    """Raises ServiceError for what is not served: only what is raised counts as an error in the statistics."""

    async def handler(request: Request) -> None:
        try:
            answer = await ask(request)
        except REFUSED as error:
            refusal = refusal_of(error)
            facts = {"status": refusal.status, "code": refusal.code, "field": refusal.field, "call": request.subject}
            log.info("refused", extra=facts | {"caller": asker(request)})
            raise _error(request, refusal) from error
        except Exception as error:
            log.exception("a request on the bus failed", extra={"subject": request.subject})
            raise _error(request, broken()) from error
        await request.respond(answer.model_dump_json(by_alias=True).encode())

    return handler


def _error(request: Request, refusal: Refusal) -> ServiceError:
    body = json.dumps(refusal.body()).encode()
    request.respond_error = partial(request.respond_error, data=body)  # type: ignore[method-assign]
    return ServiceError(str(refusal.status), str(refusal))


@cache
def _hint(model: type[BaseModel]) -> str:
    return json.dumps(model.model_json_schema(), separators=(",", ":"))
