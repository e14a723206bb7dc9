"""Notifications over HTTP: callbacks of runs and subscribers, and Ductile's relay ingress. Both fill Sender.

A name is resolved here and all its addresses are checked; the connection goes to a checked address, with the name in
the Host header and in the certificate. No redirects, no proxies of the environment, no cookies, one request per
connection. Of Ductile its own answer decides: accepted, never (it refuses in its own words), or not now. A wrong
signature waits for a person to mend it.
"""

import asyncio
import contextlib
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2
from pydantic import SecretStr

from ductile_gateway.ductile.relay_client import RelayIngress, open_relay_ingress
from ductile_gateway.ductile.relay_wire import SECRETS_DIFFER
from ductile_gateway.outbound.destinations import Destination, Forbidden, check_address, read_destination
from ductile_gateway.outbound.notifications import (
    CALLBACK,
    SUBSCRIPTION,
    Arrived,
    Gone,
    Never,
    Notification,
    NotYet,
    SendResult,
)
from ductile_gateway.outbound.settings import (
    CallbackSettings,
    NetworkSettings,
    OutboundSettings,
    RelaySettings,
    SubscriptionSettings,
)
from ductile_gateway.ports import Clock
from ductile_gateway.signatures import standard_headers, standard_key
from groundwork.http.tls import usual_authorities

RESOLVERS = 16
"""Names looked up at the same time: in threads of their own, so that a slow name server holds up nothing else."""
MOST_ADDRESSES = 4
UNSIGNED = "gateway.outbound.callbacks.secret is not set, and a callback goes out signed or not at all"
USER_AGENT = "agentic-loop-gateway"
_GONE = 410
_NOT_ALLOWED = 422

Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Receiver:
    secrets: tuple[SecretStr, ...]
    rules: NetworkSettings

    def keys(self) -> tuple[bytes, ...]:
        return tuple(standard_key(secret.get_secret_value()) for secret in self.secrets)


class CallbackSender:
    def __init__(
        self,
        client: httpx2.AsyncClient,
        resolvers: ThreadPoolExecutor,
        receivers: Mapping[str, Receiver],
        *,
        resolve: Resolve,
        timeout_s: float,
        clock: Clock,
    ) -> None:
        self._client = client
        self._resolvers = resolvers
        self._receivers = receivers
        self._resolve = resolve
        self._timeout_s = timeout_s
        self._clock = clock

    async def send(self, notification: Notification) -> SendResult:
        receiver = self._receivers.get(notification.target)
        if receiver is None:
            return Never(f"the configuration has no {notification.target} any more")
        if not receiver.secrets:
            return Never(UNSIGNED)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._sent(notification, receiver)
        except Forbidden as error:
            return Never(str(error))
        except ValueError as error:  # of a key in a file that was changed meanwhile
            return NotYet(f"what is sent to {notification.lane} cannot be signed: {error}")
        except OSError as error:  # a name that cannot be resolved; a TimeoutError is one, too
            return NotYet(f"{type(error).__name__}: no answer from {notification.lane}")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return NotYet(f"{type(error).__name__} at {notification.lane}")

    async def _sent(self, notification: Notification, receiver: Receiver) -> SendResult:
        destination = read_destination(notification.url, receiver.rules)
        addresses = await self._checked_addresses(destination, receiver.rules)
        for address in addresses[:-1]:
            with contextlib.suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await self._post(notification, receiver, destination, address=address)
        return await self._post(notification, receiver, destination, address=addresses[-1])

    async def _checked_addresses(self, destination: Destination, rules: NetworkSettings) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._resolvers, self._resolve, destination.host, destination.port)
        for address in found:
            check_address(address, rules)
        if not found:
            raise OSError(f"{destination.host} has no address")
        return list(dict.fromkeys(found))[:MOST_ADDRESSES]

    async def _post(
        self, notification: Notification, receiver: Receiver, destination: Destination, *, address: str
    ) -> SendResult:
        at = self._clock.now()
        host = f"[{address}]" if ":" in address else address
        signed = standard_headers(webhook_id(notification.key), notification.body, receiver.keys(), at=at)
        headers = {"Host": destination.authority, "Content-Type": "application/json", "User-Agent": USER_AGENT}
        async with self._client.stream(
            "POST",
            f"{destination.scheme}://{host}:{destination.port}{destination.target}",
            content=notification.body,
            headers=headers | signed,
            extensions={"sni_hostname": destination.host},
        ) as response:
            wish_s = retry_after_s(response.headers.get("retry-after"), now=at)
            return _result(response.status_code, wish_s, notification.lane)


def webhook_id(key: str) -> str:
    """The id of a dedupe key. A dot would blur what is signed, so that a key with one is hashed."""
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}" if "." in key else key


def retry_after_s(header: str | None, *, now: datetime) -> float:
    """The seconds that a Retry-After header asks for (RFC 9110: seconds or a date); 0 if it says nothing readable."""
    if header is None:
        return 0.0
    if header.strip().isascii() and header.strip().isdigit():
        return float(header.strip()[:9])
    try:
        return max(0.0, (parsedate_to_datetime(header).astimezone(UTC) - now).total_seconds())
    except (ValueError, OverflowError):
        return 0.0


def _result(status: int, wish_s: float, lane: str) -> SendResult:
    if httpx2.codes.is_success(status):
        return Arrived()
    return Gone() if status == _GONE else NotYet(f"{lane} answered {status}", wish_s)


def resolve_name(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, in the order to try them. Raises OSError."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


@contextlib.asynccontextmanager
async def open_callback_sender(
    settings: OutboundSettings, *, clock: Clock, resolve: Resolve = resolve_name, tls: ssl.SSLContext | None = None
) -> AsyncIterator[CallbackSender]:
    """Sends to subscriptions and callbacks. `tls`: trusted certificates, by default those of the usual authorities."""
    receivers = {SUBSCRIPTION + name: _receiver(one) for name, one in settings.subscriptions.items()}
    receivers[CALLBACK] = _receiver(settings.callbacks)
    timeout = httpx2.Timeout(settings.timeout_s, connect=settings.connect_timeout_s)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolver")
    # Cookies would be kept by address: what one receiver sets, the next at the same address would be sent.
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
    try:
        async with httpx2.AsyncClient(
            verify=tls or usual_authorities(), timeout=timeout, limits=limits, trust_env=False, cookies=no_cookies
        ) as client:
            yield CallbackSender(
                client, resolvers, receivers, resolve=resolve, timeout_s=settings.timeout_s, clock=clock
            )
    finally:
        resolvers.shutdown(wait=False, cancel_futures=True)


def _receiver(settings: CallbackSettings | SubscriptionSettings) -> Receiver:
    secrets = tuple(secret for secret in (settings.secret, settings.previous_secret) if secret is not None)
    return Receiver(secrets=secrets, rules=settings.network)


class RelaySender:
    def __init__(self, ingress: RelayIngress) -> None:
        self._ingress = ingress

    async def send(self, notification: Notification) -> SendResult:
        try:
            answer = await self._ingress.post(notification.body)
        except httpx2.HTTPError as error:
            return NotYet(f"{type(error).__name__} at Ductile's relay ingress ({notification.lane})")
        if answer.is_accepted:
            return Arrived(heard=bool(answer.job_id))
        why = f"Ductile's relay ingress answered {answer.status} {answer.error!a}"
        if answer.is_unsigned:
            return NotYet(f"{why}: {SECRETS_DIFFER}")
        if answer.own and answer.status == _NOT_ALLOWED:
            why += f": add {notification.type} to `accept` there, or take it out of `types` in gateway.outbound"
        return Never(why) if answer.own else NotYet(why)


@contextlib.asynccontextmanager
async def open_relay_sender(settings: RelaySettings, *, clock: Clock) -> AsyncIterator[RelaySender]:
    async with open_relay_ingress(settings.url, settings, timeout_s=settings.timeout_s, clock=clock) as ingress:
        yield RelaySender(ingress)
