"""Signatures of webhooks, against values that were made by other means, and in forms that only look right."""

import base64
import hmac
from datetime import UTC, datetime, timedelta

import pytest

from ductile_gateway import signatures

# The example of GitHub's documentation, "Validating webhook deliveries".
GITHUB_SECRET = b"It's a Secret to Everybody"
GITHUB_BODY = b"Hello, World!"
GITHUB_SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

# The example of the Standard Webhooks libraries.
STANDARD_ID, STANDARD_SECRET = "msg_p5jXN8AQM9LWM0D4loKWxJek", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_BODY = b'{"test": 2432232314}'
STANDARD_AT = datetime.fromtimestamp(1614265330, UTC)
STANDARD_SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_githubs_own_example_is_signed() -> None:
    digest = signatures.hex_digest(GITHUB_SIGNATURE, prefix_needed=True)
    assert digest is not None
    assert signatures.signed_by_any([b"another", GITHUB_SECRET], GITHUB_BODY, [digest])
    assert not signatures.signed_by_any([b"another"], GITHUB_BODY, [digest])
    assert not signatures.signed_by_any([GITHUB_SECRET], GITHUB_BODY + b"!", [digest])


def test_the_example_of_standard_webhooks_is_signed_and_what_we_sign_is_the_same() -> None:
    message = signatures.standard_message(STANDARD_ID, "1614265330", STANDARD_BODY)
    keys = [signatures.standard_key(STANDARD_SECRET)]
    assert signatures.signed_by_any(keys, message, signatures.standard_digests(STANDARD_SIGNATURE))
    assert not signatures.signed_by_any(keys, message + b" ", signatures.standard_digests(STANDARD_SIGNATURE))
    assert signatures.standard_headers(STANDARD_ID, STANDARD_BODY, keys, at=STANDARD_AT) == {
        "webhook-id": STANDARD_ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": STANDARD_SIGNATURE,
    }


@pytest.mark.parametrize(
    "text",
    ["", "sha256=", "sha1=" + "0" * 64, "0" * 63, "0" * 65, "A" * 64, "0" * 64 + "\n", "\u0661" * 64, "sha256=sha256="],
)
def test_what_is_no_lower_case_hex_of_32_bytes_is_no_signature(text: str) -> None:
    assert signatures.hex_digest(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1",
        "v1,",
        STANDARD_SIGNATURE.removeprefix("v1,"),
        STANDARD_SIGNATURE.replace("v1,", "v1a,"),
        STANDARD_SIGNATURE.replace("v1,", "none,"),
        STANDARD_SIGNATURE.rstrip("="),
        STANDARD_SIGNATURE.replace("+", "-").replace("/", "_"),
        STANDARD_SIGNATURE[:20] + "!" + STANDARD_SIGNATURE[20:],
        STANDARD_SIGNATURE.replace("OE=", "OF="),
        "v1,\u00e9",
    ],
)
def test_a_signature_list_without_strict_base64_of_version_1_holds_nothing(text: str) -> None:
    assert signatures.standard_digests(text) == ()


class Uncompared(bytes):
    """Bytes that whoever guesses by time would like to see compared byte by byte."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared as ordinary bytes are, which ends at the first that differs")

    __hash__ = bytes.__hash__


@pytest.mark.attack(34)
def test_signatures_are_compared_in_constant_time() -> None:
    message, secret = b"a delivery", b"a secret of somebody"
    right = hmac.digest(secret, message, "sha256")
    assert signatures.signed_by_any([secret], message, [Uncompared(right)])
    for wrong in (right[:-1] + b"x", b"x" + right[1:], bytes(32)):
        assert not signatures.signed_by_any([secret], message, [Uncompared(wrong)])
    with pytest.raises(AssertionError, match="ends at the first"):
        assert Uncompared(right) == right


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", STANDARD_SECRET[6:], "whsec_MTIz", "whsec_!" + STANDARD_SECRET[7:], "whsec_" + "A" * 200],
)
def test_a_secret_that_is_none_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(ValueError, match="whsec_") as caught:
        signatures.standard_key(secret)
    assert STANDARD_SECRET[10:] not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "nan", "inf", "1e3", "\u0661" * 10, "1_000_000_0", " 1795262400", "-1795262400", "1795262400.0", "179526240"],
)
def test_what_is_not_ten_digits_is_no_time(text: str) -> None:
    assert signatures.unix_instant(text) is None


@pytest.mark.parametrize(("seconds", "fits"), [(300, True), (-300, True), (301, False), (-301, False)])
def test_clocks_may_differ_up_to_the_tolerance_either_way(seconds: int, fits: bool) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert signatures.within(now + timedelta(seconds=seconds), now, 300) is fits


def test_of_a_list_no_more_than_eight_signatures_are_looked_at() -> None:
    others = " ".join(["v1," + base64.b64encode(bytes(32)).decode()] * 8)
    good = signatures.standard_digests(STANDARD_SIGNATURE)[0]
    assert good in signatures.standard_digests(f"v2,x {STANDARD_SIGNATURE}")
    assert good not in signatures.standard_digests(f"{others} {STANDARD_SIGNATURE}")
