"""The fetch plugin, against a real HTTP server on the loopback interface."""

import socket
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest

from tests.kit.http_server import DRIP, SILENT, Answer, Call, WireServer
from tests.plugins.asking import SHIPPED, ask, loaded, refused

FETCH = SHIPPED / "fetch"
HTML = "text/html; charset=utf-8"

PAGES: dict[str, Answer] = {
    "/silent": SILENT,
    "/drip": DRIP,
    "/": (200, {"Content-Type": HTML}, "<title>Tea &amp;\n  Söhne</title><p>Grüße".encode()),
    "/large": (200, {"Content-Type": "text/plain"}, b"x" * 5000),
    "/zipped": (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, b"\x1f\x8b"),
    "/short": (200, {"Content-Type": "text/plain", "Content-Length": "100"}, b"only this"),
    "/moved": (302, {"Location": "/"}, b"x" * 1000),
    "/round": (302, {"Location": "/round"}, b""),
    "/to-file": (302, {"Location": "file:///etc/passwd"}, b""),
    "/to-user": (302, {"Location": "http://me:secret@127.0.0.1/"}, b""),
    "/gone": (410, {}, b"gone"),
    "/forbidden": (403, {}, b""),
    "/busy": (429, {}, b""),
    "/broken": (503, {}, b"try later"),
}


def page(heard: Call) -> Answer:
    if heard.path.startswith("/to/"):
        return 302, {"Location": f"http://{heard.path.removeprefix('/to/')}/"}, b""
    return PAGES.get(heard.path, (404, {}, b"not here"))


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with WireServer(page) as served:
        yield served.url


def fetch(url: str, **arguments: Any) -> dict[str, Any]:
    return ask(FETCH, {"url": url} | arguments, config={"allow_private": True})


def test_a_page_becomes_a_text_and_stays_as_it_came_with_its_facts_in_the_output(site: str) -> None:
    response = fetch(f"{site}/#part")
    assert response["output"] == {
        "url": f"{site}/#part",
        "final_url": f"{site}/",
        "status": 200,
        "content_type": "text/html",
        "bytes": 43,
        "truncated": False,
        "title": "Tea & Söhne",
    }
    assert response["artifacts"] == [
        {"name": "page.md", "content_type": "text/markdown", "text": "Tea & Söhne\n\nGrüße"},
        {"name": "page.html", "content_type": "text/html", "text": "<title>Tea &amp;\n  Söhne</title><p>Grüße"},
    ]
    assert "Tea & Söhne" in response["result"]


def test_content_over_the_limit_is_cut_and_the_output_says_so(site: str) -> None:
    response = fetch(f"{site}/large", max_bytes=1000)
    assert response["artifacts"][0]["text"] == "x" * 1000
    assert (response["output"]["bytes"], response["output"]["truncated"]) == (1000, True)
    assert "cut off" in response["result"]


def test_a_redirect_is_followed_and_its_end_is_named(site: str) -> None:
    output = fetch(f"{site}/moved")["output"]
    assert (output["url"], output["final_url"]) == (f"{site}/moved", f"{site}/")


FAILURES = {
    "not_found": ("/nowhere", "/gone"),
    "tool_error": ("/forbidden", "/zipped", "/round", "/to-file"),
    "transient": ("/busy", "/broken", "/short"),
    "invalid_arguments": ("/to-user",),
}


def test_each_failure_says_whether_trying_again_can_help(site: str) -> None:
    for error_class, paths in FAILURES.items():
        for path in paths:
            error = refused(fetch(site + path), error_class, retry=error_class == "transient")
            assert (bool(error), "secret" in error) == (True, False)


@pytest.mark.parametrize("path", ["/silent", "/drip"])
def test_a_server_that_never_finishes_is_a_timeout_within_the_deadline(site: str, path: str) -> None:
    response = ask(FETCH, {"url": site + path}, config={"allow_private": True}, seconds=1.3)
    assert refused(response, "timeout", retry=True)


REFUSED = (
    *("file:///etc/passwd", "gopher://example.com/", "ftp://example.com/", "//example.com/", "example.com", "http://"),
    *("http:///path", "http://user@example.com/", "http://user:word@example.com/", "http://good\\@127.0.0.1"),
    *("http://example.com/a b", "http://example.com/\nHost: other", "http://example.com:22/"),
    *("http://example.com:6e4/", "http://[::1/", "http://a..b/", ""),
)
LOOPBACK = (
    *("127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127。0。0。1"),
    *("0.0.0.0", "0"),  # noqa: S104 - to be refused
)


def test_what_is_no_plain_web_address_or_that_of_this_machine_is_refused_before_anything_is_sent(site: str) -> None:
    port = site.rpartition(":")[2]
    for url in (*REFUSED, *(f"http://{host}:{port}/" for host in LOOPBACK)):
        error = refused(ask(FETCH, {"url": url}))
        assert url in REFUSED or "not a public address" in error


def test_a_page_on_the_internet_that_redirects_into_the_house_is_not_followed(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(site.rpartition(":")[2])

    class Routed(socket.socket):
        def connect(self, place: Any) -> None:
            super().connect(("127.0.0.1", port) if place[0] == "8.8.8.8" else place)

    monkeypatch.setattr(socket, "socket", Routed)
    assert ask(FETCH, {"url": f"http://8.8.8.8:{port}/"})["status"] == "ok"
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "169.254.169.254", "10.0.0.1"):
        assert "not a public address" in refused(ask(FETCH, {"url": f"http://8.8.8.8:{port}/to/{host}"}))


SPECIAL = (
    *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),  # noqa: S104 - to be refused
    *("192.0.0.8", "192.88.99.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fec0::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "100::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:c0a8:101::1", "2001:0:7f00:1::1", "2001:0:808:808::80ff:fffe"),
)


def test_no_special_address_counts_as_public() -> None:
    assert [address for address in SPECIAL if loaded(FETCH, "web").is_public(ip_address(address))] == []
