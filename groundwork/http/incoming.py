"""What both services look at in every request: the Host it was sent to, its path, and whose it is."""

from ipaddress import IPv6Address, ip_network

from starlette.types import Scope

PROBES = frozenset({"/healthz", "/readyz"})
"""They may come by any name: those who send them (a kubelet, a balancer) often know only an address."""


def only(scope: Scope, name: bytes) -> str:
    """The header in lower case; empty when it was sent not at all, or more than once."""
    values = [value for key, value in scope["headers"] if key == name]
    return str(values[0].decode("latin-1").lower()) if len(values) == 1 else ""


def host(scope: Scope) -> str:
    """The Host header without its port: a browser that was tricked into another name for this address sends that."""
    sent = only(scope, b"host")
    name, colon, port = sent.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else sent


def has_a_path(scope: Scope) -> bool:
    """Whether any route may be asked: one would match in spite of a line feed at the path's end."""
    return str(scope["path"]).isprintable()


def network_of(client: tuple[str, int] | None) -> str:
    """Whose a connection is, as far as its address tells: of IPv6 a whole /64, which one household or host has."""
    address = client[0] if client else ""
    if ":" not in address:
        return address
    mapped = IPv6Address(address.partition("%")[0]).ipv4_mapped
    return str(mapped or ip_network((address.partition("%")[0], 64), strict=False))
