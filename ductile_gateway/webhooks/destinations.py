"""Allowed destinations of callbacks: public addresses by HTTPS, unless an operator allows more.

Every address that a host resolves to is checked, also for a host written as a number. An IPv6 address with an IPv4
address inside (mapped, NAT64, 6to4, Teredo) is always refused.
"""

import asyncio
import contextlib
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from urllib.parse import urlsplit

from ductile_gateway.webhooks.settings import NetworkSettings, ReceiverSettings
from schemas.values import dataclass

RESOLVERS, CHECKERS = 16, 4
"""Concurrent lookups. They have their own threads, so that a slow name server delays nothing else."""
CHECKED_WITHIN_S = 1.0
UNSIGNED = "gateway.outbound.callbacks.secret is not set, and a callback goes out signed or not at all"
_DEFAULT_PORTS = {"https": 443, "http": 80}
_FORM = (
    "a callback's URL is https:// and the name of a host, without a login: "
    "2048 letters at most, of printable ASCII without a backslash"
)
_URL = re.compile(r"[!-\[\]-~]{1,2048}", re.ASCII)
_HOST = re.compile(r"[a-z0-9_:.-]{1,253}", re.ASCII)
_INSIDE = (".localhost", ".local", ".internal", ".home.arpa")
"""Names of this machine and its network (RFC 6761, 6762, 8375, ICANN's .internal): clouds serve secrets there."""
_GLOBAL_UNICAST = ("2000::/3",)
_SPECIAL = ("192.0.0.0/24", "2002::/16", "2001::/32")
"""Special networks that Python does not know as such; those of IPv6 have an IPv4 address inside."""
_PRIVATE = ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Forbidden(Exception):
    """The destination is not allowed. The message shows no more of the URL than its host."""


@dataclass(frozen=True, slots=True)
class Destination:
    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def read_destination(url: str, rules: NetworkSettings) -> Destination:
    """Raises Forbidden for a URL that the rules do not allow. The host's addresses are not checked."""
    destination = _parts(url)
    if destination.scheme == "http" and not rules.allow_http:
        raise Forbidden(f"{destination.host}: callbacks go by https; allow_http allows others")
    if destination.port not in {*_DEFAULT_PORTS.values(), *rules.ports}:
        raise Forbidden(f"{destination.host}: port {destination.port} is none of those allowed by `ports`")
    if rules.hosts and destination.host not in rules.hosts:
        raise Forbidden(f"{destination.host} is none of the `hosts`")
    if f".{destination.host}".endswith(_INSIDE) and not rules.allow_private:
        raise Forbidden(f"{destination.host} is not a public name; allow_private allows private ones")
    return destination


def server_of(url: str) -> str:
    try:
        destination = _parts(url)
    except Forbidden:
        return ""
    return f"{destination.scheme}://{destination.authority}"


def is_allowed(address: str, rules: NetworkSettings) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    is_special = parsed.is_multicast or parsed.is_reserved or _lies_in(parsed, _SPECIAL)
    is_public = parsed.is_global and not is_special and (parsed.version == 4 or _lies_in(parsed, _GLOBAL_UNICAST))
    return is_public or (rules.allow_private and _lies_in(parsed, _PRIVATE))


def _lies_in(address: _Address, networks: Iterable[str]) -> bool:
    return any(address in ipaddress.ip_network(network) for network in networks)


def _parts(url: str) -> Destination:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise Forbidden(_FORM) from None
    if parts.scheme not in _DEFAULT_PORTS or not (_URL.fullmatch(url) and _HOST.fullmatch(host)) or "@" in parts.netloc:
        raise Forbidden(_FORM)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Destination(parts.scheme, host.removesuffix("."), port or _DEFAULT_PORTS[parts.scheme], target)


Resolve = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host and port, in the order to try them. Raises OSError."""


def resolve_name(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)  # text would be taken for an IDN
    return [str(address[0]) for *_, address in found]


async def resolve_allowed(
    destination: Destination, rules: NetworkSettings, resolve: Resolve, resolvers: Executor
) -> Sequence[str]:
    """Addresses of the destination. Raises OSError for an unknown host, Forbidden if any of them is not allowed."""
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(resolvers, resolve, destination.host, destination.port)
    if not all(is_allowed(address, rules) for address in found):  # the text names none: its reader may not know it
        raise Forbidden(f"{destination.host} is not a public address; allow_private allows private ones")
    return found


def callback_check(settings: ReceiverSettings, resolve: Resolve = resolve_name) -> Callable[[str], Awaitable[str]]:
    """Returns a check for wakes: why a callback can never be delivered, or an empty text. A name that does not resolve
    in time is accepted. Callers choose these names, so their lookups have threads apart from those of deliveries."""
    checkers, rules = ThreadPoolExecutor(CHECKERS, "checker"), settings.network

    async def error_of(url: str) -> str:
        if not settings.secret:
            return UNSIGNED
        try:
            with contextlib.suppress(OSError):  # an unknown name, or a timeout
                destination = read_destination(url, rules)
                await asyncio.wait_for(resolve_allowed(destination, rules, resolve, checkers), CHECKED_WITHIN_S)
        except Forbidden as error:
            return str(error)
        return ""

    return error_of
