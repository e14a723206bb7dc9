"""Settings of the gateway: accepted and refused values; and signatures against values from other implementations."""

import base64
import hmac
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from ductile_gateway.plugins.boxes import box_of
from ductile_gateway.settings import GatewaySettings, load
from ductile_gateway.webhooks import signatures
from ductile_gateway.webhooks.settings import IngressSettings
from groundwork.service.errors import Misconfigured
from tests.gateway.ingress.kit import PEERS, SECRET


def loaded(tmp_path: Path, gateway: Any, environ: dict[str, str] | None = None) -> GatewaySettings:
    path = tmp_path / "agentic.yaml"
    path.write_text(yaml.safe_dump({"gateway": gateway, "agent": {"anything": 1}}))
    return load(path, environ or {})


def test_gateways_that_share_a_ledger_have_the_same_keys_and_plugins_reach_neither_those_nor_their_folders(
    tmp_path: Path,
) -> None:
    settings = loaded(tmp_path, {"store": "jetstream", "cache": "/var/lib/copy"})
    assert (settings.shared, settings.keys_path()) == (True, Path(".agentic/gateway.keys"))
    assert {Path("/var/lib/copy"), Path(".agentic/gateway.keys")} <= set(settings.plugins.closed)
    assert not loaded(tmp_path, {"store": "/jetstream"}).shared


def test_texts_that_plugins_are_configured_with_are_secrets(tmp_path: Path) -> None:
    config = {"fetch": {"api_key": "${KEY}", "retries": 3, "accounts": [{"token": "another-secret"}]}}
    settings = loaded(tmp_path, {"plugins": {"config": config}}, {"KEY": "hunter2-secret"})
    assert settings.plugins.config["fetch"]["api_key"] == "hunter2-secret"
    assert set(settings.secrets()) == {"hunter2-secret", "another-secret"}


NAUGHT = "${NAUGHT}"
PEER = {"keys": [{"secret": NAUGHT}], "accept": ["agentic.start"]}


@pytest.mark.parametrize(
    ("gateway", "place"),
    [
        ({"ductile": {"url": "http://localhost", "token": NAUGHT}}, "ductile.token"),
        ({"outbound": {"relay": {"url": "http://localhost", "secret": NAUGHT}}}, "outbound.relay.secret"),
        ({"outbound": {"callbacks": {"secret": NAUGHT}}}, "outbound.callbacks.secret"),
        ({"nats": {"password": NAUGHT}}, "nats.password"),
        ({"ingress": {"peers": {"d": PEER}}}, "ingress.peers.d.keys.0.secret"),
    ],
)
@pytest.mark.parametrize("value", ["", "x", "short"])
def test_no_secret_is_taken_from_a_variable_that_was_not_filled(
    tmp_path: Path, gateway: Any, place: str, value: str
) -> None:
    with pytest.raises(Misconfigured, match=f"gateway.{place}: is (empty|too short)"):
        loaded(tmp_path, gateway, {"NAUGHT": value})


@pytest.mark.parametrize(
    "url", ["http://localhost:99999", "http://localhost:http", "http://[::1", "http://me@localhost"]
)
def test_an_address_that_cannot_be_asked_is_refused(tmp_path: Path, url: str) -> None:
    secret = {"secret": f"whsec_{'0' * 32}"}
    for place, gateway in {
        "ductile": {"ductile": {"url": url, "token": "a-token-of-mine"}},
        "outbound.relay.url": {"outbound": {"relay": {"url": url} | secret}},
        "outbound.subscriptions.chat.url": {"outbound": {"subscriptions": {"chat": {"url": url} | secret}}},
    }.items():
        with pytest.raises(Misconfigured, match=f"gateway.{place}: "):
            loaded(tmp_path, gateway)


@pytest.mark.parametrize("setting", ["folders", "read", "write", "closed", "apart"])
def test_a_path_below_the_home_of_no_user_is_refused(tmp_path: Path, setting: str) -> None:
    with pytest.raises(Misconfigured, match="~nosuch/x: this machine knows no such home folder"):
        box_of(loaded(tmp_path, {"plugins": {setting: ["~nosuch/x"]}}).plugins)


START = {"to": "agentic.start", "goal": "Go."}
ANSWER = {"to": "agentic.signal", "run_id": "/run", "kind": "answer", "message": "Go."}


def hook(**changed: Any) -> dict[str, Any]:
    return {"webhooks": {"x": {"scheme": "github", "keys": [{"secret": SECRET}], "events": {"*": START}} | changed}}


def signal(**changed: Any) -> dict[str, Any]:
    return hook(events={"*": {name: value for name, value in (ANSWER | changed).items() if value}})


@pytest.mark.parametrize(
    "wrong",
    [
        *(hook(keys=keys) for keys in ([], [{"secret": ""}], [{"secret": "  "}], [{"secret": "fifteen letters"}])),
        hook(keys=[{"secret": SECRET}, {"secret": ""}]),
        hook(scheme="standard"),
        hook(scheme="standard", keys=[{"secret": "whsec_MTIz"}]),
        hook(events={}),
        hook(events={"*": {"to": "agentic.tool_request", "goal": "Go."}}),
        hook(events={"*": {"to": "agent.completed"}}),
        hook(events={"*": START | {"run_id": "/run"}}),
        signal(kind="approve", message=None),
        signal(constraints={"max_depth": "/n"}),
        # What is believed, from anybody's hand.
        signal(constraints={"max_steps": "/n"}),
        signal(outcome="/outcome"),
        {"peers": {"x": {"keys": [{"secret": SECRET}], "accept": []}}},
        {"peers": {"X": {"keys": [{"secret": SECRET}], "accept": ["agentic.start"]}}},
        {"peers": {"x": PEERS["ductile-test"]}} | hook(),
        {"peers": {"x": PEERS["ductile-test"] | {"accept": ["agentic.start"]}}},
        {"peers": {"x": PEERS["ductile-test"] | {"events": {"agentic.start": START}}}},
    ],
)
def test_what_would_let_anybody_in_or_anything_out_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        IngressSettings.model_validate(wrong)
    assert SECRET not in str(caught.value)


# The example of GitHub's documentation, "Validating webhook deliveries".
GITHUB_SECRET, GITHUB_BODY = b"It's a Secret to Everybody", b"Hello, World!"
GITHUB_SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
# The example of the Standard Webhooks libraries.
STANDARD_ID, STANDARD_SECRET = "msg_p5jXN8AQM9LWM0D4loKWxJek", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_BODY, STANDARD_AT = b'{"test": 2432232314}', datetime.fromtimestamp(1614265330, UTC)
STANDARD_SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_published_examples_are_signed_and_what_we_sign_is_the_same() -> None:
    message = signatures.standard_message(STANDARD_ID, "1614265330", STANDARD_BODY)
    keys = [signatures.standard_key(STANDARD_SECRET)]
    github = signatures.hex_digests(GITHUB_SIGNATURE, prefix_needed=True)
    standard = signatures.standard_digests(STANDARD_SIGNATURE)
    for known, signed, digests in (([GITHUB_SECRET], GITHUB_BODY, github), (keys, message, standard)):
        assert signatures.signed_by_any([b"another", *known], signed, digests)
        assert not signatures.signed_by_any([b"another"], signed, digests)
        assert not signatures.signed_by_any(known, signed + b" ", digests)
    assert signatures.standard_headers(STANDARD_ID, STANDARD_BODY, keys, at=STANDARD_AT) == {
        "webhook-id": STANDARD_ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": STANDARD_SIGNATURE,
    }


BARE = STANDARD_SIGNATURE.removeprefix("v1,")
OTHERS = (BARE, f"v1a,{BARE}", f"none,{BARE}", STANDARD_SIGNATURE.rstrip("="), f"v1,{BARE[:17]}!{BARE[17:]}")
SPELT = (STANDARD_SIGNATURE.replace("+", "-").replace("/", "_"), STANDARD_SIGNATURE.replace("OE=", "OF="))
DIGITS = ("", "nan", "inf", "1e3", "\u0661" * 10, "1_000_000_0", " 1795262400", "-1795262400", "1795262400.0")
HEX = ("", "sha256=", "sha1=" + "0" * 64, "0" * 63, "0" * 65, "A" * 64, "0" * 64 + "\n", "\u0661" * 64)


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (signatures.hex_digests, (*HEX, "sha256=sha256=")),
        (signatures.standard_digests, ("", "v1", "v1,", "v1,\u00e9", *OTHERS, *SPELT)),
        (signatures.unix_instant, (*DIGITS, "179526240")),
    ],
    ids=["lower-case hex of 32 bytes", "strict base64 of version 1", "ten digits"],
)
def test_what_has_not_the_form_of_a_signature_or_time_is_none(read: Callable[[str], Any], texts: Sequence[str]) -> None:
    assert [text for text in texts if read(text)] == []


class Uncompared(bytes):
    """Bytes that must not be compared byte by byte."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared as ordinary bytes are, which ends at the first that differs")

    __hash__ = bytes.__hash__


def test_signatures_are_compared_in_constant_time() -> None:
    message, secret = b"a delivery", b"a secret of somebody"
    right = hmac.digest(secret, message, "sha256")
    assert signatures.signed_by_any([secret], message, [Uncompared(right)])
    for wrong in (right[:-1] + b"x", b"x" + right[1:], bytes(32)):
        assert not signatures.signed_by_any([secret], message, [Uncompared(wrong)])
    with pytest.raises(AssertionError, match="ends at the first"):
        assert Uncompared(right) == right


def test_a_secret_that_is_none_is_refused_without_being_shown() -> None:
    junk = ("whsec_MTIz", "whsec_!" + STANDARD_SECRET[7:], "whsec_" + "A" * 200)
    for secret in ("", "whsec_", STANDARD_SECRET[6:], *junk):
        with pytest.raises(ValueError, match="whsec_") as caught:
            signatures.standard_key(secret)
        assert STANDARD_SECRET[10:] not in str(caught.value)


def test_of_a_list_no_more_than_eight_signatures_are_looked_at() -> None:
    others = " ".join(["v1," + base64.b64encode(bytes(32)).decode()] * 8)
    good = signatures.standard_digests(STANDARD_SIGNATURE)[0]
    assert good in signatures.standard_digests(f"v2,x {STANDARD_SIGNATURE}")
    assert good not in signatures.standard_digests(f"{others} {STANDARD_SIGNATURE}")
