"""Consumes tool requests and events of runs, and serves the micro service (NATS ADR-32).

A message that can never be processed becomes a dead letter. Trouble of the gateway itself never makes one: it ends the
process, which resumes after its restart.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import field
from functools import partial
from weakref import WeakValueDictionary

import nats.errors
from nats.micro.request import Request, ServiceError
from nats.micro.service import Service
from pydantic import ValidationError

from ductile_gateway.calls.call import CallRequest, read_request, route_of
from ductile_gateway.calls.relay import Relay
from ductile_gateway.calls.results import SOURCE
from ductile_gateway.trust import Trust
from ductile_gateway.webhooks.notifications import LifecycleEvent, read_event
from groundwork.nats.dead_letters import Notice
from groundwork.nats.link import NatsLink
from groundwork.nats.micro_service import micro_service
from groundwork.nats.publishing import Delivery
from groundwork.nats.pull_loop import PullLoop
from groundwork.service import strict
from groundwork.service.errors import GiveUp, TryAgain
from groundwork.service.machine import monotonic, utc_now
from schemas import subjects
from schemas.bounded import json_object
from schemas.catalog import Catalog
from schemas.envelope import RUN_ID, SIGNATURE, rejection
from schemas.status import GatewayPruned, GatewayPruneRequest, GatewayStatus
from schemas.values import dataclass

WAITED_SHARE = 0.25
"""A request that waited for long comes again later, by a share of its wait: so redeliveries stay few, and no request
waits for much longer than what it waits for."""


def request_loop(link: NatsLink, relay: Relay, *, trust: Trust | None, slots: int, grace_s: float) -> PullLoop:
    """Returns the loop that consumes tool requests; when it is cancelled, calls get `grace_s` to end. `trust`: writes
    must be signed by the agent."""

    must_check = trust or relay.ownership.predecessor

    async def handle(delivery: Delivery) -> None:
        try:
            asked = read_request(delivery.subject, delivery.body, delivery.headers)
        except GiveUp:
            if relay.offers.serves(route_of(delivery.subject)):
                raise
            return
        if relay.offers.is_ours(asked):
            try:
                await relay.take(asked, partial(_check, relay, trust, asked, delivery) if must_check else None)
            except TryAgain as error:
                waited_s = (utc_now() - delivery.at).total_seconds()
                raise TryAgain(str(error), delay_s=max(error.delay_s, waited_s * WAITED_SHARE)) from error
        elif relay.offers.serves(asked.route):  # one of several gateways may have another name
            relay.ownership.leave_to_others(asked)

    return PullLoop(
        link,
        subjects.STREAM_REQUESTS,
        subjects.DURABLE_TOOLS,
        handle,
        dead_letters=(subjects.DEAD_LETTERS_TOOLS, rejection_notice),
        slots=slots,
        grace_s=grace_s,
        on_stop=relay.close,
    )


async def _check(relay: Relay, trust: Trust | None, asked: CallRequest, delivery: Delivery) -> None:
    offered = relay.offers.command(asked.request.tool, asked.request.tool_command)
    if trust and offered and offered.command.tier == "write":
        await _authenticate(trust, delivery)
    relay.ownership.note_delivery(asked.key, delivery.delivered, delivery.at)


async def _authenticate(trust: Trust, delivery: Delivery) -> None:
    signature, again = delivery.headers.get(SIGNATURE), delivery.delivered > 1
    await trust.check(delivery.subject, delivery.body, signature, again=again)


BEHIND_S, COMES_AGAIN_S = 0.5, 30.0
"""Delay of an event behind one that was put off; and the time after which that one is lost."""
SLOTS = 16

Take = Callable[[LifecycleEvent], Awaitable[None]]


async def follow_events(link: NatsLink, stream: str, durable: str, *, trust: Trust, take: Take) -> None:
    """Acknowledges an event when `take` has returned; takes those of one run one after another, in their order.
    Messages that the agent did not sign are dead letters."""
    order = RunOrder()

    async def handle(delivery: Delivery) -> None:
        if delivery.subject == subjects.PROGRESS and SIGNATURE not in delivery.headers:
            return  # the agent signs progress only once it knows that somebody wants it
        async with order.kept(delivery.headers.get(RUN_ID, ""), delivery.seq):
            await _authenticate(trust, delivery)
            try:
                message = strict.read(delivery.body)
            except strict.NotStrictJson as error:
                raise GiveUp(str(error)) from error
            await take(read_event(delivery.subject, message, at=delivery.at))

    dead_letters = subjects.DEAD_LETTERS_OUTBOUND, rejection_notice
    await PullLoop(link, stream, durable, handle, dead_letters=dead_letters, slots=SLOTS).run()


@dataclass(eq=False)
class RunOrder:
    """`_put_off`: by run, the sequences of events that were put off, and when."""

    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _put_off: dict[str, dict[int, float]] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def kept(self, run_id: str, seq: int) -> AsyncIterator[None]:
        """Enters once earlier events of the run that are in hand are done. Raises TryAgain if one was put off."""
        async with self._locks.setdefault(run_id, asyncio.Lock()):
            began_at, found = monotonic(), self._put_off.pop(run_id, {})
            others = {one: at for one, at in found.items() if one != seq and began_at - at < COMES_AGAIN_S}
            if min(others, default=seq) < seq:
                self._put_off[run_id] = others | {seq: began_at}
                raise TryAgain("an earlier event of its run comes first", BEHIND_S)
            try:
                yield
            except TryAgain:
                others[seq] = monotonic()
                raise
            finally:
                if others:
                    self._put_off[run_id] = others


def rejection_notice(delivery: Delivery, stream: str, reason: str) -> Notice:
    refused = delivery.subject, delivery.body, delivery.headers, delivery.seq
    return rejection(*refused, stream=stream, reason=reason, source=SOURCE, at=utc_now())


async def answer_catalog(service: Service, catalog: Callable[[], Catalog], *, each: str) -> None:
    """In the queue group `each`, because other executors answer on the same subject, and of several gateways all do:
    one may have tools that another does not have yet."""

    async def tell(request: Request) -> None:
        await request.respond(catalog().model_dump_json().encode())

    await service.add_endpoint(name="catalog", subject=subjects.CATALOG, handler=tell, queue_group=each)


async def answer_callbacks(service: Service, flaw_of: Callable[[str], Awaitable[str]]) -> None:
    async def tell(request: Request) -> None:
        url = (json_object(request.data) or {}).get("url")
        if not isinstance(url, str):
            raise ServiceError("400", 'send {"url": "https://…"}')
        await request.respond(json.dumps({"flaw": await flaw_of(url)}).encode())

    await service.add_endpoint(name="callback", subject=subjects.CALLBACK, handler=tell)


async def answer_prune(service: Service, prune: Callable[[bool], Awaitable[GatewayPruned]]) -> None:
    async def tell(request: Request) -> None:
        try:
            asked = GatewayPruneRequest.model_validate_json(request.data)
        except ValidationError as error:
            raise ServiceError("400", 'send {"dry_run": true}, or {} to prune') from error
        await request.respond((await prune(asked.dry_run)).model_dump_json().encode())

    await service.add_endpoint(name="prune", subject=subjects.PRUNE, handler=tell)


@contextlib.asynccontextmanager
async def serve_endpoints(
    link: NatsLink, status: Callable[[], Awaitable[GatewayStatus]], *, each: str = ""
) -> AsyncIterator[Service]:
    """Answers inside the context. `status` must not raise. `each`: name of this gateway if all of several answer."""

    async def tell(request: Request) -> None:
        await request.respond((await status()).model_dump_json().encode())

    about = "Carries tool requests of agents to their tools."
    service = await micro_service(Service, link, name=subjects.SERVICE_GATEWAY, description=about)
    try:
        await service.add_endpoint(name="status", subject=subjects.STATUS, handler=tell, queue_group=each or None)
        yield service
    finally:
        with contextlib.suppress(nats.errors.Error):  # the lost connection is reported elsewhere
            await service.stop()
