#!/usr/bin/env python3
"""Fetches one address with HTTP GET (Ductile plugin protocol v2). Standard library only, Python 3.11 or newer.

No proxies, cookies or credentials. Unless `allow_private` is set, only public addresses: a name is resolved once,
every address it has is checked, and the connection goes to a checked one, since a second look-up could answer
otherwise; the same for each redirect.
"""

import base64
import codecs
import contextlib
import html
import http.client
import json
import re
import signal
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

DEFAULT_MAX_BYTES, LARGEST_MAX_BYTES = 2 * 1024 * 1024, 4 * 1024 * 1024
DEFAULT_SECONDS, CONNECT_SECONDS, SECONDS_TO_ANSWER = 30.0, 10.0, 1.0
WEB_PORTS, FREE_PORTS = (80, 443), range(1024, 65536)
RETRY_STATUSES = (408, 425, 429)
TEXT_TYPES = ("application/xhtml+xml", "application/xml", "application/javascript", "application/json")
SUFFIXES = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/markdown": "md",
    "text/csv": "csv",
    "text/xml": "xml",
    "application/xml": "xml",
    "application/json": "json",
    "application/pdf": "pdf",
    "image/png": "png",
    "image/jpeg": "jpeg",
}
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}

GLOBAL_UNICAST = ip_network("2000::/3")
CARRIERS = (ip_network("64:ff9b::/96"), ip_network("::/96"))
# Protocol assignments and the retired 6to4 relay, which the ipaddress module of some Python versions calls global.
NOT_PUBLIC = (ip_network("192.0.0.0/24"), ip_network("192.88.99.0/24"))


class Failure(Exception):
    """The fetch ends in an error of this class; `retry` says whether trying again can help."""

    def __init__(self, error_class: str, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retry = retry


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address is an ordinary one on the internet: not loopback, private, link-local, multicast, …

    An IPv6 address that carries an IPv4 address (mapped, NAT64, 6to4, Teredo) is judged by that one.
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
    """The address as it is sent: without fragment, in ASCII. Raises Failure if it must not be fetched."""
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


def _get(url: str, config: dict[str, Any]) -> Any:
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


def title_of(page: str) -> str:
    """The text of the first title element near the top, in one line of at most 200 characters."""
    found = re.search(r"<title\b[^>]*>([^<]*)</title", page[:65536], re.IGNORECASE)
    return " ".join(html.unescape(found[1]).split())[:200] if found else ""


def decoded(body: bytes, declared: str | None) -> str:
    """The text, by byte order mark, declared charset, meta element or as UTF-8; what does not decode is replaced."""
    marked = next((charset for mark, charset in MARKS.items() if body.startswith(mark)), None)
    meta = re.search(rb"""<meta[^>]{0,200}charset=["']?([A-Za-z0-9_-]{1,40})""", body[:2048], re.IGNORECASE)
    for charset in filter(None, (marked, declared, meta and meta[1].decode())):
        with contextlib.suppress(LookupError, ValueError):
            return body.decode(str(charset), "replace")
    return body.decode("utf-8", "replace")


def _page(response: Any, url: str, limit: int) -> dict[str, Any]:
    body = response.read(limit + 1)
    if len(body) <= limit and response.length:
        raise Failure("transient", f"the connection ended {response.length} bytes too early", retry=True)
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Failure("tool_error", "the server sent compressed content, which was not asked for")
    content_type, cut = response.headers.get_content_type(), len(body) > limit
    output = {"url": url, "final_url": response.geturl(), "status": response.status, "content_type": content_type}
    output |= {"bytes": min(len(body), limit), "truncated": cut}
    suffix = SUFFIXES.get(content_type) or ("txt" if content_type.startswith("text/") else "bin")
    artifact = {"name": f"page.{suffix}", "content_type": content_type}
    if content_type.startswith("text/") or content_type in TEXT_TYPES or content_type.endswith(("+xml", "+json")):
        artifact["text"] = decoded(body[:limit], response.headers.get_content_charset())
        if "html" in content_type and (title := title_of(artifact["text"])):
            output["title"] = title
    else:
        artifact["base64"] = base64.b64encode(body[:limit]).decode()
    return {"status": "ok", "result": _summary(output), "output": output, "artifacts": [artifact]}


def _summary(output: dict[str, Any]) -> str:
    title = f": “{output['title']}”" if "title" in output else ""
    cut = ", cut off there" if output["truncated"] else ""
    return f"Fetched {output['final_url']} ({output['content_type']}, {output['bytes']} bytes{cut}){title}"


def _failure(error: Exception) -> Failure:
    """What to tell of an error on the way."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(error, urllib.error.HTTPError):
        return _refusal(error.code)
    if isinstance(cause, TimeoutError):
        return Failure("timeout", "the server did not answer in time", retry=True)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Failure("tool_error", f"the server's certificate is not valid: {cause.verify_message}")
    return Failure("transient", f"the server could not be reached: {cause or type(cause).__name__}", retry=True)


def _refusal(status: int) -> Failure:
    message = f"the server answered {status} {http.client.responses.get(status, '')}".strip()
    if status in (404, 410):
        return Failure("not_found", message)
    if status >= 500 or status in RETRY_STATUSES:
        return Failure("transient", message, retry=True)
    if status < 400:
        message += ", a redirect that leads nowhere or too far"
    return Failure("tool_error", message)


def _seconds(request: dict[str, Any]) -> float:
    """How long the fetch may take: the configured time, and never so long that no answer could be given."""
    configured = (request.get("config") or {}).get("timeout_seconds") or DEFAULT_SECONDS
    left = (datetime.fromisoformat(request["deadline_at"]) - datetime.now(UTC)).total_seconds()
    return max(0.1, min(left - SECONDS_TO_ANSWER, float(configured)))


def _out_of_time(*_: object) -> None:
    raise TimeoutError


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The response to a request. Raises Failure, OSError or HTTPException."""
    if request["command"] == "health":
        return {"status": "ok", "result": "fetch can be run"}
    payload = (request.get("event") or request).get("payload") or {}
    url, limit = payload.get("url"), payload.get("max_bytes", DEFAULT_MAX_BYTES)
    if not isinstance(url, str):
        raise Failure("invalid_arguments", "url is missing")
    if not isinstance(limit, int) or not 1 <= limit <= LARGEST_MAX_BYTES:
        raise Failure("invalid_arguments", f"max_bytes must be a whole number from 1 to {LARGEST_MAX_BYTES}")
    # An alarm rather than a socket timeout, which a server that sends a byte now and then would never reach.
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, _seconds(request))
    try:
        with _get(url, request.get("config") or {}) as response:
            return _page(response, url, limit)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> None:
    try:
        response = answer(json.load(sys.stdin))
    except (Failure, OSError, http.client.HTTPException) as error:
        failure = error if isinstance(error, Failure) else _failure(error)
        response = {
            "status": "error",
            "error": str(failure),
            "retry": failure.retry,
            "error_class": failure.error_class,
        }
    sys.stdout.buffer.write(json.dumps(response, ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
