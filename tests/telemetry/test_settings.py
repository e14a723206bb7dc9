"""Telemetry settings, which the standard variables of OpenTelemetry override."""

import pytest
from pydantic import SecretStr, ValidationError

from groundwork.service.errors import Misconfigured
from groundwork.service.secret import login_in, without_login
from groundwork.telemetry.settings import TelemetrySettings, TraceReceiver

HERE = "http://127.0.0.1:4318"
CONFIGURED = TelemetrySettings(endpoint=HERE, headers=SecretStr("Authorization=Bearer%20of-ours,x-team=a"))


THERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://there:4318/"}
WHOLE = THERE | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://elsewhere/spans"}


@pytest.mark.parametrize(
    ("endpoint", "environ", "address"),
    [
        (None, {}, ""),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ""),
        (f"{HERE}/otlp/", {}, f"{HERE}/otlp/v1/traces"),
        (f"{HERE}/?api_key=K", {}, f"{HERE}/v1/traces?api_key=K"),
        (HERE, THERE, "https://there:4318/v1/traces"),
        (HERE, WHOLE, "https://elsewhere/spans"),
        (HERE, {"OTEL_SDK_DISABLED": "true"}, ""),
        (HERE, {"OTEL_TRACES_EXPORTER": "none"}, ""),
    ],
)
def test_the_environment_has_the_last_word_on_where_traces_go(
    endpoint: str | None, environ: dict[str, str], address: str
) -> None:
    assert url(TelemetrySettings(endpoint=endpoint).receiver(environ)) == address


def test_headers_do_not_go_over_plain_http_to_another_machine() -> None:
    there = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://there:4318"}
    with pytest.raises(Misconfigured, match=r"http://there:4318/v1/traces.*allow_http_nonloopback"):
        CONFIGURED.receiver(there)
    assert CONFIGURED.secrets(there), "they are hidden all the same"
    assert url(CONFIGURED.model_copy(update={"allow_http_nonloopback": True}).receiver(there))
    assert url(TelemetrySettings().receiver(there)), "without headers there is nothing to learn"


@pytest.mark.parametrize("there", ["http://r.example/v1/traces?api_key=the-key", "http://user:the-key@r.example"])
def test_a_key_in_the_address_does_not_go_over_plain_http_to_another_machine(there: str) -> None:
    with pytest.raises(Misconfigured, match=r"^(?!.*the-key).*allow_http_nonloopback"):
        TelemetrySettings().receiver({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": there})


@pytest.mark.parametrize("wrong", ["r.example:4318", "http://[bad", "grpc://user:the-key@r.example?the-key"])
def test_an_endpoint_that_is_no_address_is_refused(wrong: str) -> None:
    for read in (TelemetrySettings().receiver, TelemetrySettings().secrets):
        with pytest.raises(Misconfigured, match=r"^(?!.*the-key).*no address.*http://127\.0\.0\.1:4318"):
            read({"OTEL_EXPORTER_OTLP_ENDPOINT": wrong})


@pytest.mark.parametrize("wrong", ["authorization: Bearer the-key", "x-team=a,authorization: Basic the-key="])
def test_a_header_that_is_no_pair_is_reported_and_not_shown(wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValidationError, match="authorization=Bearer%20KEY"):
        TelemetrySettings(headers=SecretStr(wrong))
    receiver = CONFIGURED.receiver({"OTEL_EXPORTER_OTLP_HEADERS": f"{wrong},x-team=b"})
    assert receiver
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


@pytest.mark.parametrize(
    ("address", "login", "shown"),
    [
        ("https://host.example/@org/v1", None, "https://host.example/@org/v1"),
        ("https://host.example/v1?of=a@b", None, "https://host.example/v1?of=a@b"),
        ("https://john.doe:2024#Spring@host.example:80", "2024#Spring", "https://host.example:80"),
        ("https://me:pass/of@mine@host.example/v1", "pass/of@mine", "https://host.example/v1"),
        ("https://a.key:of/mine@host", "of/mine", "https://host"),
    ],
)
def test_an_at_sign_behind_the_host_ends_no_login(address: str, login: str | None, shown: str) -> None:
    assert (login_in(address), without_login(address)) == (login, shown)


def url(receiver: TraceReceiver | None) -> str:
    return receiver.url if receiver else ""
