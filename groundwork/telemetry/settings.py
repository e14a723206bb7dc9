"""Settings section `telemetry:` of both services: receiver of traces, and sampling. The standard variables override it.

The protocol is `http/protobuf` (https://opentelemetry.io/docs/specs/otel/protocol/exporter/). Sampling depends on the
lower 64 bits of the trace id, as in the SDK, so that all services decide alike. Imports nothing of OpenTelemetry.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import Field

from groundwork.service.config_file import Section
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import Secret, keeps_secrets, secrets_in_url, without_login

Proxy = Annotated[str, Field(pattern=r"^https?://\S+$", max_length=2048)]
Endpoint = Annotated[str, Field(pattern=r"^https?://[^\s/?#]+(/\S*)?$", max_length=2048)]

_OTLP = "OTEL_EXPORTER_OTLP_"


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
    headers: Secret | None = None
    allow_http_nonloopback: bool = False
    proxy: Proxy | None = Field(None, repr=False)
    content: bool = False

    def receiver(self, environ: Mapping[str, str] = os.environ) -> TraceReceiver | None:
        """Raises Misconfigured where a key would go unencrypted."""
        found = self._receiver(environ)
        if found and found.headers and not (self.allow_http_nonloopback or keeps_secrets(found.url)):
            why = "its headers, which may hold a key, would go over plain http to another machine"
            remedy = "use https, or set telemetry.allow_http_nonloopback"
            raise Misconfigured(f"traces are to be sent to {found.address}: {why}: {remedy}")
        return found

    def _receiver(self, environ: Mapping[str, str]) -> TraceReceiver | None:
        """An endpoint for traces is taken as it is; a base is completed (specification of the exporter)."""
        whole, base = environ.get(f"{_OTLP}TRACES_ENDPOINT"), environ.get(f"{_OTLP}ENDPOINT") or self.endpoint
        url = whole or (f"{base.removesuffix('/')}/v1/traces" if base else "")
        is_off = ("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")
        if not url or any(environ.get(name, "").strip().lower() == off for name, off in is_off):
            return None
        own = _parsed(self.headers.get_secret_value()) if self.headers else {}
        theirs = environ.get(f"{_OTLP}TRACES_HEADERS") or environ.get(f"{_OTLP}HEADERS", "")
        return TraceReceiver(url=url, headers=own | _parsed(theirs), proxy=self.proxy)

    def secrets(self, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
        if (to := self._receiver(environ)) is None:
            return ()
        query = (value for _, value in parse_qsl(urlsplit(to.url).query))
        return (*to.headers.values(), *secrets_in_url(to.url), *secrets_in_url(to.proxy or ""), *query)


def _parsed(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text.split(","))
    return {unquote(name).strip().lower(): unquote(value).strip() for name, equals, value in pairs if equals}


def uses_latest_gen_ai(environ: Mapping[str, str] = os.environ) -> bool:
    """True for the names of semantic-conventions-genai 0.1, the successor of 1.41."""
    chosen = environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")
    return "gen_ai_latest_experimental" in map(str.strip, chosen)


Sampler = Callable[[str], bool]
"""True if the trace with this id (32 hex digits) is kept."""

_SHARES = {"always_on": "1", "always_off": "0"}


def sampler(environ: Mapping[str, str] = os.environ) -> Sampler:
    """Sampler of the environment; keeps every trace if that has none or an invalid one."""
    name = environ.get("OTEL_TRACES_SAMPLER", "always_on").strip().lower().removeprefix("parentbased_")
    said = environ.get("OTEL_TRACES_SAMPLER_ARG", "") if name == "traceidratio" else _SHARES.get(name, "1")
    try:
        bound = round(min(1.0, max(0.0, float(said))) * 2**64)
    except ValueError:
        bound = 2**64
    return lru_cache(maxsize=4096)(lambda trace_id: int(trace_id[16:], 16) < bound)
