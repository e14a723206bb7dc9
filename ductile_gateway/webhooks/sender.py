"""Sends notifications over HTTP: to callbacks, subscribers and Ductile's relay ingress.

All addresses of a name are checked; the connection goes to a checked address, with the name in the Host header and in
the certificate. No redirects, no proxies of the environment, no cookies, one request per connection.
"""

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2

from ductile_gateway.ductile import api
from ductile_gateway.webhooks import destinations
from ductile_gateway.webhooks.notifications import CALLBACK, Notification, Try
from ductile_gateway.webhooks.settings import OutboundSettings, ReceiverSettings, RelaySettings, SubscriptionSettings
from ductile_gateway.webhooks.signatures import standard_headers
from groundwork.service.machine import utc_now
from schemas.values import dataclass

CONNECT_WITHIN_S = 5.0
MOST_ADDRESSES = 4
USER_AGENT = "agentic-loop-gateway"


@dataclass(eq=False)
class WebhookSender:
    """`resolvers`: look up names of the operator. `of_callers`: those of callbacks, which may take long on purpose.
    `receivers`: by target."""

    client: httpx2.AsyncClient
    resolve: destinations.Resolve
    resolvers: Executor
    of_callers: Executor
    receivers: Mapping[str, ReceiverSettings | api.RelayIngress]
    timeout_s: float

    async def send(self, notification: Notification) -> Try:
        receiver = self.receivers.get(notification.target)
        if receiver is None:
            return Try("dead", f"the configuration has no {notification.target} of gateway.outbound any more")
        try:
            async with asyncio.timeout(self.timeout_s):
                if isinstance(receiver, api.RelayIngress):
                    return await self._relay(notification, receiver)
                return await self._call(notification, receiver)
        except destinations.Forbidden as error:  # the operator's own address, or the rules for it, may be mended
            return Try("dead" if notification.target == CALLBACK else "put_off", str(error))
        except (OSError, httpx2.HTTPError, httpx2.InvalidURL) as error:  # an OSError: no such name, or a timeout
            return Try("put_off", f"no answer from {notification.lane} ({str(error) or type(error).__name__})")

    async def _relay(self, notification: Notification, ingress: api.RelayIngress) -> Try:
        try:
            return Try("arrived" if await ingress.post(notification.body) else "unheard")
        except (api.AnswerLost, api.UnreadableAnswer) as error:
            return Try("put_off", str(error))
        except api.DuctileRefused as refusal:
            if refusal.status == httpx2.codes.FORBIDDEN:  # a name or a key there may be mended
                return Try("put_off", str(refusal))
            hint = f": add {notification.type} to `accept` there, or take it out of `types` in gateway.outbound"
            return Try("dead", str(refusal) + hint * (refusal.status == httpx2.codes.UNPROCESSABLE_CONTENT))

    async def _call(self, notification: Notification, receiver: ReceiverSettings) -> Try:
        if not (keys := receiver.keys()):
            return Try("dead", destinations.UNSIGNED)
        url = receiver.url if isinstance(receiver, SubscriptionSettings) else notification.url
        destination = destinations.read_destination(url, receiver.network)
        resolvers = self.of_callers if notification.target == CALLBACK else self.resolvers
        found = await destinations.resolve_allowed(destination, receiver.network, self.resolve, resolvers)
        if not found:
            raise OSError(f"{destination.host} has no address")
        *others, last = list(dict.fromkeys(found))[:MOST_ADDRESSES]
        for address in others:
            with contextlib.suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await self._post(notification, keys, destination, address=address)
        return await self._post(notification, keys, destination, address=last)

    async def _post(
        self, notification: Notification, keys: Sequence[bytes], destination: destinations.Destination, *, address: str
    ) -> Try:
        at = utc_now()
        host = f"[{address}]" if ":" in address else address
        key = notification.key
        name = f"sha256:{hashlib.sha256(key.encode()).hexdigest()}" if "." in key else key  # dots separate signed parts
        signed = standard_headers(name, notification.body, keys, at=at)
        headers = {"Host": destination.authority, "Content-Type": "application/json", "User-Agent": USER_AGENT}
        async with self.client.stream(
            "POST",
            f"{destination.scheme}://{host}:{destination.port}{destination.target}",
            content=notification.body,
            headers=headers | signed,
            extensions={"sni_hostname": destination.host},
        ) as response:
            if httpx2.codes.is_success(response.status_code):
                return Try("arrived")
            why = f"{notification.lane} answered {response.status_code}"
            if response.status_code == httpx2.codes.GONE:
                return Try("dead", why)
            return Try("put_off", why, retry_after_s(response.headers.get("retry-after", ""), now=at))


def retry_after_s(header: str, *, now: datetime) -> float:
    """Seconds that a Retry-After header asks for (RFC 9110: seconds or a date); 0 if it cannot be read."""
    if header.isascii() and header.isdigit():
        return float(header[:9])
    try:
        return max(0.0, (parsedate_to_datetime(header).astimezone(UTC) - now).total_seconds())
    except (ValueError, OverflowError):
        return 0.0


@contextlib.asynccontextmanager
async def open_sender(
    settings: OutboundSettings,
    *,
    resolve: destinations.Resolve = destinations.resolve_name,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[WebhookSender]:
    receivers: dict[str, ReceiverSettings | api.RelayIngress] = {CALLBACK: settings.callbacks}
    async with contextlib.AsyncExitStack() as opened:
        for target, one in settings.receivers().items():
            if isinstance(one, RelaySettings):
                ingress = api.open_relay_ingress(one.url, one, timeout_s=settings.timeout_s)
                receivers[target] = await opened.enter_async_context(ingress)
            else:
                receivers[target] = one
        client = httpx2.AsyncClient(
            verify=tls or api.default_tls(),
            timeout=httpx2.Timeout(settings.timeout_s, connect=CONNECT_WITHIN_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=False,
            # Cookies are kept by address: the next receiver at the same address would be sent them.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )
        resolvers, of_callers = (ThreadPoolExecutor(destinations.RESOLVERS, "resolver") for _ in range(2))
        for threads in (resolvers, of_callers):
            opened.callback(threads.shutdown, wait=False, cancel_futures=True)
        await opened.enter_async_context(client)
        yield WebhookSender(client, resolve, resolvers, of_callers, receivers, settings.timeout_s)
