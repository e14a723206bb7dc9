"""Refused settings of the ingress, and signatures against values from other implementations."""

import base64
import hmac
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from ductile_gateway.webhooks import signatures
from ductile_gateway.webhooks.settings import IngressSettings
from tests.gateway.ingress.kit import PEERS, SECRET

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
