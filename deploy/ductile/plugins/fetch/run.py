#!/usr/bin/env python3
"""Fetches one address with HTTP GET (Ductile plugin protocol v2). Standard library only, Python 3.11 or newer.

The answer has the page as text, to read and quote, and as received.
"""

import base64
import codecs
import contextlib
import html
import http.client
import json
import re
import signal
import ssl
import sys
import urllib.error
from datetime import UTC, datetime
from typing import Any

from page_text import readable, text_of
from web import Failure, get

DEFAULT_MAX_BYTES, LARGEST_MAX_BYTES = 2 * 1024 * 1024, 4 * 1024 * 1024
DEFAULT_SECONDS, SECONDS_FOR_TEXT, SECONDS_TO_ANSWER = 30.0, 5.0, 1.0
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

CHARSETS = re.compile(
    r"utf[-_]?8(-sig)?|utf[-_]?(16|32)([-_]?(le|be))?|(us-)?ascii|(iso[-_]?8859|windows|cp|ibm)[-_]?[0-9]{1,4}|"
    r"latin[-_]?1|koi8[-_][ru]|macintosh|shift[-_]?jis|sjis|euc[-_](jp|kr)|iso-2022-jp|big5(-hkscs)?|gbk|gb2312|gb18030|"
    r"tis-620",
    re.IGNORECASE,
)
"""Charsets of pages. Python has more, such as `punycode`, which takes half a minute for a long page."""


def title_of(page: str) -> str:
    """Returns the first title element near the top, in one line of at most 200 characters."""
    found = re.search(r"<title\b[^>]*>([^<]*)</title", page[:65536], re.IGNORECASE)
    return " ".join(html.unescape(readable(found[1])).split())[:200] if found else ""


def decoded(body: bytes, declared: str | None) -> str:
    """Decodes by byte order mark, declared charset, meta element or as UTF-8; replaces what does not decode."""
    marked = next((charset for mark, charset in MARKS.items() if body.startswith(mark)), None)
    meta = re.search(rb"""<meta[^>]{0,200}charset=["']?([A-Za-z0-9_-]{1,40})""", body[:2048], re.IGNORECASE)
    for charset in (marked, declared, meta and meta[1].decode()):
        with contextlib.suppress(LookupError, ValueError):
            if charset and CHARSETS.fullmatch(charset):
                return body.decode(charset, "replace")
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
    artifacts, remark = [_as_received(body[:limit], content_type, response.headers.get_content_charset())], ""
    if "html" in content_type and (page := artifacts[0].get("text")):
        output |= {"title": title} if (title := title_of(page)) else {}
        as_text = _as_text(page, response.geturl())
        artifacts = [*as_text, *artifacts]
        remark = "" if as_text else ". It has no text that can be read without a browser"
    return {"status": "ok", "result": _summary(output) + remark, "output": output, "artifacts": artifacts}


def _as_received(body: bytes, content_type: str, charset: str | None) -> dict[str, str]:
    suffix = SUFFIXES.get(content_type) or ("txt" if content_type.startswith("text/") else "bin")
    artifact = {"name": f"page.{suffix}", "content_type": content_type}
    if content_type.startswith("text/") or content_type in TEXT_TYPES or content_type.endswith(("+xml", "+json")):
        return artifact | {"text": decoded(body, charset)}
    return artifact | {"base64": base64.b64encode(body).decode()}


def _as_text(page: str, address: str) -> list[dict[str, str]]:
    """Returns the page as text for reading and quoting; nothing if it has no words or takes too long."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    signal.setitimer(signal.ITIMER_REAL, min(left, SECONDS_FOR_TEXT))
    with contextlib.suppress(TimeoutError):
        text = text_of(page, address)[:LARGEST_MAX_BYTES]
        signal.setitimer(signal.ITIMER_REAL, 0)
        return [{"name": "page.md", "content_type": "text/markdown", "text": text}] if text else []
    return []


def _summary(output: dict[str, Any]) -> str:
    title = f": “{output['title']}”" if "title" in output else ""
    cut = ", cut off there" if output["truncated"] else ""
    return f"Fetched {output['final_url']} ({output['content_type']}, {output['bytes']} bytes{cut}){title}"


def _failure(error: Exception) -> Failure:
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
    """Returns the timeout: the configured one, but early enough to answer before the deadline."""
    configured = (request.get("config") or {}).get("timeout_seconds") or DEFAULT_SECONDS
    left = (datetime.fromisoformat(request["deadline_at"]) - datetime.now(UTC)).total_seconds()
    return max(0.1, min(left - SECONDS_TO_ANSWER, float(configured)))


def _out_of_time(*_: object) -> None:
    raise TimeoutError


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the response to a request. Raises Failure, OSError or HTTPException."""
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
        with get(url, request.get("config") or {}) as response:
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
