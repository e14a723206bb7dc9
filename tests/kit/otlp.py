"""OTLP receiver for tests: takes traces over HTTP and decodes the real protobuf.

with receiving() as otlp:
    …OTEL_EXPORTER_OTLP_ENDPOINT=otlp.url…
    trace = otlp.trace(trace_id)
    assert trace.tree() == [...]
"""

import gzip
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.kit.http_server import Call, Response, WireServer
from tests.kit.waiting import wait_until

_KINDS = {number: name.removeprefix("SPAN_KIND_").lower() for name, number in WireSpan.SpanKind.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A received span. Instants are nanoseconds; `links` are (trace id, span id)."""

    service: str
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    started: int
    ended: int
    attributes: Mapping[str, Any]
    links: tuple[tuple[str, str], ...]
    error: str | None


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of one trace without exact duplicates; a changed repetition counts as another span."""

    spans: tuple[Received, ...]

    def children(self, span: Received) -> list[Received]:
        return sorted((s for s in self.spans if s.parent_id == span.span_id), key=lambda s: (s.started, s.ended))

    @property
    def roots(self) -> list[Received]:
        return [span for span in self.spans if not span.parent_id]

    @property
    def orphans(self) -> list[Received]:
        known = {span.span_id for span in self.spans}
        return [span for span in self.spans if span.parent_id and span.parent_id not in known]

    def tree(self) -> list[str]:
        """One line per span, indented below its parent: its name, and `!` for an error."""
        return [line for root in (*self.roots, *self.orphans) for line in self._lines(root, "")]

    def _lines(self, span: Received, indent: str) -> Iterator[str]:
        yield f"{indent}{span.name}{' !' if span.error is not None else ''}"
        for child in self.children(span):
            yield from self._lines(child, indent + "  ")


@dataclass
class Otlp:
    url: str = ""
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """Path and lower-case headers of each request."""
    spans: list[Received] = field(default_factory=list)
    """All spans, repetitions included."""

    def traces(self) -> dict[str, Trace]:
        found: dict[str, list[Received]] = {}
        for span in tuple(self.spans):
            found.setdefault(span.trace_id, []).append(span)
        return {
            trace_id: Trace(tuple({repr(span): span for span in told}.values())) for trace_id, told in found.items()
        }

    def trace(self, trace_id: str) -> Trace:
        """Waits for the first span of the trace."""
        wait_until(lambda: trace_id in self.traces(), lambda: f"nothing of trace {trace_id}")
        return self.traces()[trace_id]

    def take(self, call: Call) -> Response:
        self.requests.append((call.path, call.headers))
        body = gzip.decompress(call.raw) if "content-encoding" in call.headers else call.raw
        self.spans.extend(_spans(ExportTraceServiceRequest.FromString(body)))
        return Response(content_type="application/x-protobuf")  # empty: an answer in which all was taken


@contextmanager
def receiving() -> Iterator[Otlp]:
    otlp = Otlp()
    with WireServer(otlp.take) as server:
        otlp.url = server.url
        yield otlp


def _spans(request: ExportTraceServiceRequest) -> Iterator[Received]:
    for of_resource in request.resource_spans:
        service = _attributes(of_resource.resource.attributes).get("service.name", "")
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield _span(span, service)


def _span(span: WireSpan, service: str) -> Received:
    return Received(
        service=service,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        kind=_KINDS[span.kind],
        started=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        error=span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None,
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(map(_value, value.array_value.values))
    return getattr(value, kind) if kind else None
