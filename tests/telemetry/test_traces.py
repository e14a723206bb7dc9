"""Spans as a receiver decodes them, its warning when it is away, and settings that the standard variables override."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr, ValidationError

from ductile_gateway import telemetry
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import login_in, without_login
from groundwork.telemetry.sending import SpanSender
from groundwork.telemetry.settings import TelemetrySettings, TraceReceiver
from groundwork.telemetry.span import Context, Span, context_of, span_id
from tests.kit.http_server import Call, Response, WireServer
from tests.kit.otlp import Otlp, receiving
from tests.kit.waiting import beside, until

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = Span(
    trace_id=TRACE,
    span_id=span_id("the call"),
    parent_id=span_id("the run"),
    name="execute_tool fetch",
    kind="client",
    started_at=AT,
    ended_at=AT + timedelta(seconds=1.5),
    attributes={"text": "ä", "number": 1, "share": 0.5, "flag": True, "list": ("a", "b")},
    links=(Context("f" * 32, "e" * 16),),
    error="timeout",
)


def test_a_span_arrives_as_it_was_told_with_the_receivers_headers_and_past_the_proxies_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody listens
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with receiving() as otlp:
        receiver = TraceReceiver(url=f"{otlp.url}/v1/traces", headers={"authorization": "Bearer of-ours"})
        sender = SpanSender(receiver, "ductile-gateway")
        assert sender.send([SPAN])
        (span,) = otlp.trace(TRACE).spans
        assert otlp.requests[0][1]["authorization"] == "Bearer of-ours"
    assert (span.service, span.name, span.kind, span.error) == ("ductile-gateway", SPAN.name, "client", "timeout")
    assert (span.span_id, span.parent_id) == (SPAN.span_id, SPAN.parent_id)
    assert (span.started, span.ended - span.started) == (1_767_323_045_678_901_000, 1_500_000_000)
    assert span.attributes == SPAN.attributes
    assert span.links == (("f" * 32, "e" * 16),)


def test_why_no_span_arrives_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A redirect is no success, and certificates are those that the environment names."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/of-this-house.pem")
    with WireServer(lambda _: Response(status=301, headers={"Location": "https://elsewhere"})) as server:
        for url, why in {server.url: "it redirects", "https://127.0.0.1:9": "/of-this-house.pem"}.items():
            assert not SpanSender(TraceReceiver(url=url), "agentic-loop").send([SPAN])
            assert why in caplog.records[-1].__dict__["why"]


@pytest.mark.parametrize(("name", "why"), [("refused", "400"), ("refused", "413"), ("\ud800", "Failed to encode")])
def test_refused_spans_are_dropped_and_told_once_and_hold_up_no_other(
    name: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    otlp = Otlp()

    def respond(call: Call) -> Response:
        return Response(status=int(why)) if b"refused" in call.raw else otlp.take(call)

    bad, other = replace(SPAN, name=name, span_id="a" * 16), replace(SPAN, trace_id="b" * 32)
    with WireServer(respond) as server:
        assert SpanSender(TraceReceiver(url=server.url), "agentic-loop").send([SPAN, bad, other])
    assert other.trace_id in otlp.traces()
    assert (TRACE in otlp.traces()) == (why != "400"), "what is too large is halved"
    (told,) = (record for record in caplog.records if "trace_id" in record.__dict__)
    assert (told.__dict__["trace_id"], why in told.__dict__["why"]) == (TRACE, True)


def test_spans_are_kept_while_a_person_can_end_the_trouble() -> None:
    statuses = iter((401, 404, 500))
    with WireServer(lambda _: Response(status=next(statuses))) as server:
        sender = SpanSender(TraceReceiver(url=server.url), "agentic-loop")
        assert [sender.send([SPAN]) for _ in range(3)] == [False] * 3


async def test_a_gateways_spans_arrive_once_the_receiver_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "EVERY_S", 0.01)
    otlp, away = Otlp(), iter([True])
    with WireServer(lambda call: Response(status=401) if next(away, False) else otlp.take(call)) as server:
        spans = telemetry.Spans(TelemetrySettings(endpoint=server.url).sender("ductile-gateway"))
        spans.take(SPAN)
        async with beside(spans.keep_sending()):
            await until(lambda: TRACE in otlp.traces())


def test_a_trace_context_says_whether_it_is_sampled() -> None:
    for flags, sampled in {"00": False, "01": True, "03": True, "02": False}.items():
        assert context_of(f"00-{TRACE}-{'b' * 16}-{flags}") == Context(TRACE, "b" * 16, sampled=sampled)


HERE = "http://127.0.0.1:4318"
CONFIGURED = TelemetrySettings(endpoint=HERE, headers=SecretStr("Authorization=Bearer%20of-ours,x-team=a"))


THERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://there:4318/"}
WHOLE = THERE | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://elsewhere/spans"}


ADDRESSES: tuple[tuple[str | None, dict[str, str], str], ...] = (
    (None, {}, ""),
    (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ""),
    (f"{HERE}/otlp/", {}, f"{HERE}/otlp/v1/traces"),
    (f"{HERE}/?api_key=K", {}, f"{HERE}/v1/traces?api_key=K"),
    (HERE, THERE, "https://there:4318/v1/traces"),
    (HERE, WHOLE, "https://elsewhere/spans"),
    (HERE, {"OTEL_SDK_DISABLED": "true"}, ""),
    (HERE, {"OTEL_TRACES_EXPORTER": "none"}, ""),
)


def test_the_environment_has_the_last_word_on_where_traces_go() -> None:
    for endpoint, environ, address in ADDRESSES:
        assert url(TelemetrySettings(endpoint=endpoint).receiver(environ)) == address


def test_headers_do_not_go_over_plain_http_to_another_machine() -> None:
    there = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://there:4318"}
    with pytest.raises(Misconfigured, match=r"http://there:4318/v1/traces.*allow_http_nonloopback"):
        CONFIGURED.receiver(there)
    assert CONFIGURED.secrets(there), "they are hidden all the same"
    assert url(CONFIGURED.model_copy(update={"allow_http_nonloopback": True}).receiver(there))
    assert url(TelemetrySettings().receiver(there)), "without headers there is nothing to learn"


def test_a_key_in_the_address_does_not_go_over_plain_http_to_another_machine() -> None:
    for there in ("http://r.example/v1/traces?api_key=the-key", "http://user:the-key@r.example"):
        with pytest.raises(Misconfigured, match=r"^(?!.*the-key).*allow_http_nonloopback"):
            TelemetrySettings().receiver({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": there})


def test_an_endpoint_that_is_no_address_is_refused() -> None:
    for wrong in ("r.example:4318", "http://[bad", "grpc://user:the-key@r.example?the-key"):
        for read in (TelemetrySettings().receiver, TelemetrySettings().secrets):
            with pytest.raises(Misconfigured, match=r"^(?!.*the-key).*no address.*http://127\.0\.0\.1:4318"):
                read({"OTEL_EXPORTER_OTLP_ENDPOINT": wrong})


def test_a_header_that_is_no_pair_is_reported_and_not_shown(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ("authorization: Bearer the-key", "x-team=a,authorization: Basic the-key="):
        caplog.clear()
        with pytest.raises(ValidationError, match="authorization=Bearer%20KEY"):
            TelemetrySettings(headers=SecretStr(wrong))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"{wrong},x-team=b")
        receiver = CONFIGURED.receiver()
        assert receiver
        SpanSender(receiver, "agentic-loop")
        assert receiver.headers == {"authorization": "Bearer of-ours", "x-team": "b"}
        assert "OTEL_EXPORTER_OTLP_HEADERS" in caplog.text
        assert "the-key" not in caplog.text


def test_headers_and_logins_are_secrets_wherever_they_come_from() -> None:
    settings = TelemetrySettings(endpoint="https://user:login-of-ours@there:4318")
    environ = {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "authorization=Bearer%20of-theirs"}
    assert set(settings.secrets(environ)) == {"Bearer of-theirs", "login-of-ours"}
    assert "login" not in repr(settings)
    receiver = settings.receiver(environ)
    assert receiver
    assert receiver.address == "https://there:4318/v1/traces"
    assert "of-" not in repr(receiver)


LOGINS = {
    "https://host.example/@org/v1": (None, "https://host.example/@org/v1"),
    "https://host.example/v1?of=a@b": (None, "https://host.example/v1?of=a@b"),
    "https://john.doe:2024#Spring@host.example:80": ("2024#Spring", "https://host.example:80"),
    "https://me:pass/of@mine@host.example/v1": ("pass/of@mine", "https://host.example/v1"),
    "https://a.key:of/mine@host": ("of/mine", "https://host"),
}


def test_an_at_sign_behind_the_host_ends_no_login() -> None:
    assert {address: (login_in(address), without_login(address)) for address in LOGINS} == LOGINS


def url(receiver: TraceReceiver | None) -> str:
    return receiver.url if receiver else ""
