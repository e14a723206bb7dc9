"""A real Jaeger, for tests that show traces in one: JAEGER_URL is the address of its API (http://127.0.0.1:16686).

Its receiver is taken to be on port 4318 of the same host, unless JAEGER_OTLP_URL says where. One for trying:
`docker run --rm -p 16686:16686 -p 4318:4318 jaegertracing/jaeger:latest`, or the binary of a release.
"""

import os
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.kit.otlp import Received, Trace

URL = os.environ.get("JAEGER_URL", "").removesuffix("/")
MISSING = (
    "no Jaeger: run one (docker run -p 16686:16686 -p 4318:4318 jaegertracing/jaeger), and name it with JAEGER_URL"
)
needs_jaeger = pytest.mark.skipif(not URL, reason=MISSING)


def otlp_url() -> str:
    """Where it receives spans."""
    return os.environ.get("JAEGER_OTLP_URL") or f"http://{urlsplit(URL).hostname}:4318"


async def trace_in_jaeger(trace_id: str) -> Trace:
    """The trace as Jaeger shows it now; one without spans where it knows none."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{URL}/api/v3/traces/{trace_id}")
    resources = answer.json()["result"]["resourceSpans"] if answer.status_code == 200 else []
    return Trace(
        tuple(
            _span(span, _attributes(of_resource["resource"])["service.name"])
            for of_resource in resources
            for of_scope in of_resource["scopeSpans"]
            for span in of_scope["spans"]
        )
    )


def _span(span: dict[str, Any], service: str) -> Received:
    status = span.get("status", {})
    return Received(
        service=service,
        trace_id=span["traceId"],
        span_id=span["spanId"],
        parent_id=span.get("parentSpanId", ""),
        name=span["name"],
        kind=("unspecified", "internal", "server", "client", "producer", "consumer")[span.get("kind", 0)],
        started=int(span["startTimeUnixNano"]),
        ended=int(span["endTimeUnixNano"]),
        attributes=_attributes(span),
        events=tuple((event["name"], _attributes(event)) for event in span.get("events", ())),
        links=tuple((link["traceId"], link["spanId"]) for link in span.get("links", ())),
        error=status.get("message", "") if status.get("code") == 2 else None,
    )


def _attributes(of: dict[str, Any]) -> dict[str, Any]:
    return {pair["key"]: next(iter(pair["value"].values()), None) for pair in of.get("attributes", ())}
