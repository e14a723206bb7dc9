"""HTTP GET without proxies, cookies and credentials.

Unless `allow_private` is set, it connects to public addresses only. It resolves a name once, checks all its addresses
and connects to a checked one, because a second look-up could differ; the same for each redirect.
"""

import http.client
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

CONNECT_SECONDS = 10.0
WEB_PORTS, FREE_PORTS = (80, 443), range(1024, 65536)

GLOBAL_UNICAST = ip_network("2000::/3")
CARRIERS = (ip_network("64:ff9b::/96"), ip_network("::/96"))
# Protocol assignments and the retired 6to4 relay, which the ipaddress module of some Python versions calls global.
NOT_PUBLIC = (ip_network("192.0.0.0/24"), ip_network("192.88.99.0/24"))


class Failure(Exception):
    """Ends the fetch with an error of this class. `retry`: a later attempt may succeed."""

    def __init__(self, error_class: str, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retry = retry


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Returns True for an ordinary internet address: not loopback, private, link-local, multicast, …

    An IPv6 address that carries an IPv4 address (mapped, NAT64, 6to4, Teredo) counts as that one.
    """
    if isinstance(address, IPv6Address):
        carried = list(_carried(address))
        return all(map(is_public, carried)) if carried else address in GLOBAL_UNICAST and address.is_global
    special = address.is_multicast or address.is_reserved or any(address in network for network in NOT_PUBLIC)
    return address.is_global and not special


def _carried(address: IPv6Address) -> Iterator[IPv4Address]:
    if address.ipv4_mapped:
        yield address.ipv4_mapped
    if address.sixtofour:
        yield address.sixtofour
    if address.teredo:
        yield from address.teredo
    if any(address in network for network in CARRIERS):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def checked_url(url: str, *, allow_private: bool) -> str:
    """Returns the address to send: without fragment, in ASCII. Raises Failure if it must not be fetched."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except (ValueError, UnicodeError):
        raise Failure("invalid_arguments", "url is not a valid address") from None
    if parts.scheme not in ("http", "https") or not host or re.search(r"[\s\\\x00-\x1f\x7f]", url):
        raise Failure("invalid_arguments", "url must be a full address that starts with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise Failure("invalid_arguments", "url must not contain a user name or password")
    if port is not None and port not in WEB_PORTS and port not in FREE_PORTS and not allow_private:
        raise Failure("invalid_arguments", f"port {port} is not a port of web servers: fetch does not go there")
    place = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    path, query = (quote(part, safe="%/:=&?~+!$,;'@()*[]") for part in (parts.path, parts.query))
    return urlunsplit((parts.scheme, place, path or "/", query, ""))


class _PlainConnection(http.client.HTTPConnection):
    def __init__(self, host: str, *, allow_private: bool, **options: Any) -> None:
        super().__init__(host, **options)
        self._allow_private = allow_private

    def connect(self) -> None:
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        for *_, place in found:
            if not self._allow_private and not is_public(ip_address(place[0])):
                raise Failure(
                    "invalid_arguments",
                    f"{self.host} is at {place[0]}, which is not a public address: fetch may not go there",
                )
        self.sock = _first_that_answers(found)


class _TlsConnection(_PlainConnection):
    default_port = http.client.HTTPS_PORT

    def connect(self) -> None:
        super().connect()
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


def _first_that_answers(found: list[Any]) -> socket.socket:
    failure = OSError("the name has no address")
    for family, kind, protocol, _, place in found:
        candidate = socket.socket(family, kind, protocol)
        candidate.settimeout(CONNECT_SECONDS)
        try:
            candidate.connect(place)
        except OSError as error:
            candidate.close()
            failure = error
        else:
            candidate.settimeout(None)
            return candidate
    raise failure


class _Connections(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def __init__(self, *, allow_private: bool) -> None:
        super().__init__()
        self._plain = partial(_PlainConnection, allow_private=allow_private)
        self._tls = partial(_TlsConnection, allow_private=allow_private)

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(self._plain, request)

    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(self._tls, request)


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = 5

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private

    def redirect_request(
        self, request: urllib.request.Request, response: Any, code: int, reason: str, headers: Any, url: str
    ) -> urllib.request.Request | None:
        # urllib would read the whole body of the redirect, of whatever size: a closed response reads as empty.
        response.close()
        url = checked_url(url, allow_private=self._allow_private)
        return super().redirect_request(request, response, code, reason, headers, url)


def get(url: str, config: dict[str, Any]) -> Any:
    allow_private = config.get("allow_private") in (True, "true")
    opener = urllib.request.OpenerDirector()
    for handler in (
        _Connections(allow_private=allow_private),
        _Redirects(allow_private=allow_private),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    agent = str(config.get("user_agent") or "agentic-loop-fetch/0.1")
    opener.addheaders = [("User-Agent", agent), ("Accept", "text/html, text/*;q=0.9, */*;q=0.5")]
    return opener.open(checked_url(url, allow_private=allow_private))
