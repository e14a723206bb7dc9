"""The fetch plugin, against a real HTTP server on the loopback interface."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any

import pytest

from tests.plugins.asking import SHIPPED, ask, loaded

FETCH = SHIPPED / "fetch"
HTML = "text/html; charset=utf-8"
STEP = 0.05
NO_CHARACTER = f"&#{'1' * 5000};"

PAGES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/": (200, {"Content-Type": HTML}, "<title>Tea &amp;\n  Söhne</title><p>Grüße".encode()),
    "/latin": (200, {"Content-Type": "text/html"}, '<meta charset="iso-8859-1"><p>Grüße'.encode("latin-1")),
    "/declared": (200, {"Content-Type": "text/plain; charset=utf-16"}, "Grüße".encode("utf-16")),
    "/nonsense": (200, {"Content-Type": "text/plain; charset=no-such-thing"}, "Grüße".encode()),
    "/slow-charset": (200, {"Content-Type": "text/plain; charset=punycode"}, b"a-b"),
    "/empty": (200, {"Content-Type": HTML}, b"<div id=app></div><script src=app.js></script>"),
    "/no-character": (
        200,
        {"Content-Type": HTML},
        f"<title>Tea{NO_CHARACTER}</title><p>Cake{NO_CHARACTER}<a href='/{NO_CHARACTER}'>more</a>".encode(),
    ),
    "/endless": (200, {"Content-Type": HTML}, b"<p>x</p>" * 200_000),
    "/image": (200, {"Content-Type": "image/png"}, b"\x89PNG\x00\xff"),
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


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path in ("/silent", "/drip"):
            return self._linger()
        status, headers, body = PAGES.get(self.path, (404, {}, b"not here"))
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        return None

    def _linger(self) -> None:
        """Nothing, or a byte now and then, until the client has gone."""
        if self.path == "/drip":
            self.send_response(200)
            self.end_headers()
        self.connection.settimeout(STEP)
        for _ in range(int(20 / STEP)):
            try:
                if not self.connection.recv(1):
                    break
            except TimeoutError:
                if self.path == "/drip":
                    self.wfile.write(b".")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": STEP})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


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


@pytest.mark.parametrize(
    ("path", "error_class", "retry"),
    [
        ("/nowhere", "not_found", False),
        ("/gone", "not_found", False),
        ("/forbidden", "tool_error", False),
        ("/busy", "transient", True),
        ("/broken", "transient", True),
        ("/short", "transient", True),
        ("/zipped", "tool_error", False),
        ("/round", "tool_error", False),
        ("/to-file", "tool_error", False),
        ("/to-user", "invalid_arguments", False),
    ],
)
def test_each_failure_says_whether_trying_again_can_help(site: str, path: str, error_class: str, retry: bool) -> None:
    response = fetch(site + path)
    assert (response["status"], response["error_class"], response["retry"]) == ("error", error_class, retry)
    assert response["error"]
    assert "secret" not in response["error"]


@pytest.mark.parametrize("path", ["/silent", "/drip"])
def test_a_server_that_never_finishes_is_a_timeout_within_the_deadline(site: str, path: str) -> None:
    response = ask(FETCH, {"url": site + path}, config={"allow_private": True}, seconds=1.3)
    assert (response["status"], response["error_class"], response["retry"]) == ("error", "timeout", True)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127。0。0。1"),
        *("0.0.0.0", "0"),  # noqa: S104 - to be refused
    ],
)
def test_the_loopback_address_is_refused_however_it_is_spelled(site: str, host: str) -> None:
    port = site.rpartition(":")[2]
    response = ask(FETCH, {"url": f"http://{host}:{port}/"})
    assert (response["status"], response["error_class"], response["retry"]) == ("error", "invalid_arguments", False)
    assert "not a public address" in response["error"]


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://example.com/",
        "ftp://example.com/",
        "//example.com/",
        "example.com",
        "http://",
        "http:///path",
        "http://user@example.com/",
        "http://user:word@example.com/",
        "http://good\\@127.0.0.1",
        "http://example.com/a b",
        "http://example.com/\nHost: other",
        "http://example.com:22/",
        "http://example.com:6e4/",
        "http://[::1/",
        "http://a..b/",
        "",
    ],
)
def test_what_is_no_plain_web_address_is_refused_before_anything_is_sent(url: str) -> None:
    response = ask(FETCH, {"url": url})
    assert (response["status"], response["error_class"], response["retry"]) == ("error", "invalid_arguments", False)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),  # noqa: S104 - to be refused
        *("192.0.0.8", "192.88.99.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fec0::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "100::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
        *("64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:c0a8:101::1", "2001:0:7f00:1::1", "2001:0:808:808::80ff:fffe"),
    ],
)
def test_no_special_address_counts_as_public(address: str) -> None:
    assert not loaded(FETCH, "web").is_public(ip_address(address))


def test_a_private_address_is_refused_also_behind_a_redirect_target_of_another_port(site: str) -> None:
    response = ask(FETCH, {"url": site}, config={"allow_private": False})
    assert "not a public address" in response["error"]
