"""Where a callback may go: public addresses by HTTPS, unless an operator allows more. Pure: nothing is resolved here.

An IPv6 address that carries an IPv4 one inside (mapped, NAT64, 6to4, Teredo) is always refused.
"""

import ipaddress
import re
from urllib.parse import urlsplit

from ductile_gateway.webhooks.outbound_settings import NetworkSettings
from schemas.values import dataclass

_DEFAULT_PORTS = {"https": 443, "http": 80}
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*", re.ASCII)
_NUMBER = re.compile(r"(\d+|0x[0-9a-f]*)", re.ASCII)
_PRINTABLE = re.compile(r"[!-\[\]-~]+", re.ASCII)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_CARRIES_IPV4 = tuple(map(ipaddress.IPv6Network, ("2002::/16", "2001::/32", "64:ff9b::/96", "::ffff:0:0/96", "::/96")))
_INSIDE = (".localhost", ".local", ".internal", ".home.arpa")
"""Names of this machine and its network (RFC 6761, 6762, 8375, ICANN's .internal): clouds hand out secrets there."""
_LONGEST_URL = 2048


class Forbidden(Exception):
    """Nothing is sent to that place. The message says why, and repeats no more of the URL than its host."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The parts of a URL. `target`: path and query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def read_destination(url: str, rules: NetworkSettings) -> Destination:
    """The place that the URL names. Raises Forbidden for what the rules do not allow, but for the host's addresses."""
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


def flaw_of(url: str, rules: NetworkSettings) -> str:
    """Why nothing is ever sent there, as far as the URL itself tells; empty if it does not."""
    try:
        host = read_destination(url, rules).host
        if _is_address(host):
            check_address(host, rules)
    except Forbidden as error:
        return str(error)
    return ""


def _is_address(host: str) -> bool:
    return ":" in host or bool(_NUMBER.fullmatch(host.rpartition(".")[2]))


def lane_of(url: str) -> str:
    try:
        destination = _parts(url)
    except Forbidden:
        return ""
    return f"{destination.scheme}://{destination.authority}"


def check_address(address: str, rules: NetworkSettings) -> None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        raise Forbidden(f"{address[:60]!r} is no IP address") from None
    if not (_public(parsed) or (rules.allow_private and _private(parsed))):
        raise Forbidden(f"{address} is not a public address; allow_private allows private ones")


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _public(address: _Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address not in ipaddress.IPv4Network("192.0.0.0/24")
    return address in _GLOBAL_UNICAST and not any(address in network for network in _CARRIES_IPV4)


def _private(address: _Address) -> bool:
    if address.is_loopback:
        return True
    if isinstance(address, ipaddress.IPv6Address):
        return address in ipaddress.IPv6Network("fc00::/7")
    return any(address in ipaddress.IPv4Network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


def _parts(url: str) -> Destination:
    if len(url) > _LONGEST_URL or not _PRINTABLE.fullmatch(url):
        raise Forbidden(f"a callback's URL has printable ASCII without a backslash, {_LONGEST_URL} letters at most")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise Forbidden("a callback's URL cannot be read") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise Forbidden("a callback's URL begins with https://")
    if "@" in parts.netloc:
        raise Forbidden("a callback's URL names no user and no password")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Destination(parts.scheme, _host(host), port or _DEFAULT_PORTS[parts.scheme], target)


def _host(host: str) -> str:
    if ":" in host:
        return _literal(host)
    name = host.removesuffix(".")
    if not _NAME.fullmatch(name) or len(name) > 253:
        raise Forbidden("a callback's URL names a host in ASCII letters, digits, hyphens and dots")
    return _literal(name) if _NUMBER.fullmatch(name.rpartition(".")[2]) else name


def _literal(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise Forbidden(f"{host[:60]!r} is no IP address in its usual form") from None
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        raise Forbidden(f"{host[:60]!r} names an interface of this computer")
    return str(address)
