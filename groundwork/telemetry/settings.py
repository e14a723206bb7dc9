"""Settings section `telemetry:` of both services: receiver of traces. The standard variables override it.

The protocol is `http/protobuf` (https://opentelemetry.io/docs/specs/otel/protocol/exporter/). Imports nothing of
OpenTelemetry, whose reader of headers logs a malformed one with its key.
"""

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, Field

from groundwork.service.config_file import Section, written
from groundwork.service.errors import Misconfigured
from groundwork.service.program import loaded
from groundwork.service.secret import (
    Secret,
    is_address,
    keeps_secrets,
    login_in,
    secrets_in_url,
    unfit,
    without_login,
)
from groundwork.telemetry.span import Span

Proxy = Annotated[str, Field(max_length=2048), written(r"https?://\S+", "http://HOST:PORT")]
Endpoint = Annotated[str, Field(max_length=2048), written(r"https?://[^\s/?#]+(/\S*)?", "http://HOST:PORT")]

_OTLP = "OTEL_EXPORTER_OTLP_"
_HEADER = re.compile(r"\s*([\w!#$%&'*+.^`|~-]+)\s*=(.*)", re.ASCII | re.DOTALL)

SendSpans = Callable[[Sequence[Span]], bool]
"""Blocks; returns True if the receiver took the spans, or never will."""

log = logging.getLogger(__name__)


def _well_formed(headers: Secret) -> Secret:
    if _malformed(headers.get_secret_value()):
        raise unfit("has a part that is no `name=value`: write authorization=Bearer%20KEY,other=value")
    return headers


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReceiver:
    """`url` is the whole address; `headers` (names in lower case) are secret."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """Address without login and query, in which some receivers take a key."""
        return without_login(self.url).partition("?")[0]


class TelemetrySettings(Section):
    """Nothing is sent without an endpoint, here or in the environment."""

    endpoint: Endpoint | None = Field(None, repr=False)
    headers: Annotated[Secret, AfterValidator(_well_formed)] | None = None
    allow_http_nonloopback: bool = False
    proxy: Proxy | None = Field(None, repr=False)
    content: bool = False

    def receiver(self, environ: Mapping[str, str] = os.environ) -> TraceReceiver | None:
        """Raises Misconfigured if a key would go unencrypted, or the endpoint is no address."""
        if (found := self._receiver(environ)) is None:
            return None
        if _malformed(_headers_in(environ)):
            log.warning("%sHEADERS or %sTRACES_HEADERS has a part that is no name=value: it is ignored", _OTLP, _OTLP)
        may_hold_key = found.headers or login_in(found.url) or urlsplit(found.url).query
        if may_hold_key and not (self.allow_http_nonloopback or keeps_secrets(found.url)):
            why = "its headers, login or query, which may hold a key, would go over plain http to another machine"
            remedy = "use https, or set telemetry.allow_http_nonloopback"
            raise Misconfigured(f"traces are to be sent to {found.address}: {why}: {remedy}")
        return found

    def sender(self, service: str) -> SendSpans | None:
        """Loads the SDK with the first spans, which takes a fifth of a second. Raises as `receiver` does."""
        if (receiver := self.receiver()) is None:
            return None
        made = cache(lambda: loaded("groundwork.telemetry.sending:SpanSender")(receiver, service))
        return lambda spans: made().send(spans)

    def _receiver(self, environ: Mapping[str, str]) -> TraceReceiver | None:
        """An endpoint for traces is taken as it is; a base is completed (specification of the exporter)."""
        whole = environ.get(f"{_OTLP}TRACES_ENDPOINT")
        url = whole or environ.get(f"{_OTLP}ENDPOINT") or self.endpoint
        is_off = ("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")
        if not url or any(environ.get(name, "").strip().lower() == off for name, off in is_off):
            return None
        if not is_address(url, "http", "https"):
            shown = TraceReceiver(url=url).address
            raise Misconfigured(f"{shown} is no address of a receiver of traces: write it like http://127.0.0.1:4318")
        if not whole:
            base = urlsplit(url)
            url = base._replace(path=f"{base.path.removesuffix('/')}/v1/traces").geturl()
        own = _parsed(self.headers.get_secret_value()) if self.headers else {}
        return TraceReceiver(url=url, headers=own | _parsed(_headers_in(environ)), proxy=self.proxy)

    def secrets(self, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
        if (to := self._receiver(environ)) is None:
            return ()
        query = (value for _, value in parse_qsl(urlsplit(to.url).query))
        return (*to.headers.values(), *secrets_in_url(to.url), *secrets_in_url(to.proxy or ""), *query)


def _headers_in(environ: Mapping[str, str]) -> str:
    return environ.get(f"{_OTLP}TRACES_HEADERS") or environ.get(f"{_OTLP}HEADERS", "")


def _malformed(headers: str) -> bool:
    return not all(_HEADER.fullmatch(part) for part in headers.split(",") if part.strip())


def _parsed(headers: str) -> dict[str, str]:
    """Ignores a part that is no `name=value`, as the specification has it."""
    pairs = filter(None, map(_HEADER.fullmatch, headers.split(",")))
    return {unquote(pair[1]).lower(): unquote(pair[2]).strip() for pair in pairs}


def uses_latest_gen_ai(environ: Mapping[str, str] = os.environ) -> bool:
    """True for the names of semantic-conventions-genai 0.1, the successor of 1.41."""
    chosen = environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")
    return "gen_ai_latest_experimental" in map(str.strip, chosen)
