"""Allowed destinations of callbacks, checked at the wake and again before sending."""

import threading
import time
from collections.abc import Sequence

import pytest

from ductile_gateway.webhooks import destinations
from ductile_gateway.webhooks.settings import NetworkSettings, ReceiverSettings
from tests.gateway.outbound.kit import SECRET

STRICT = NetworkSettings()
LENIENT = NetworkSettings(allow_private=True, allow_http=True, ports=(8080,))
ODD = r"""
    http://example.org/ ftp://example.org/ //example.org/ https:///path https://user@example.org/
    https://user:secret@example.org/ https://@example.org/ https://example.org:22/ https://example.org:99999/
    https://exa\mple.org/ https://example.org\@127.0.0.1/ https://exämple.org/ https://[fe80::1%25eth0]/ https://[::1/
"""
LONG, SPACED, BROKEN = f"https://example.org/{'x' * 3000}", "https://exam ple.org/", "https://example.org/\r\nHost: x"


@pytest.mark.parametrize("url", [*ODD.split(), SPACED, BROKEN, LONG])
def test_a_url_that_is_no_plain_https_address_of_a_host_is_refused(url: str) -> None:
    with pytest.raises(destinations.Forbidden):
        destinations.read_destination(url, STRICT)


PRIVATE = "127.0.0.1 127.9.9.9 ::1 10.0.0.1 172.16.0.1 192.168.1.1 fd00::1".split()  # noqa: SIM905
SPECIAL = """
    0.0.0.0 :: 169.254.169.254 fe80::1 fec0::1 fe80::1%eth0 100.64.0.1 192.0.0.8 198.18.0.1 224.0.0.1 ff02::1 240.0.0.1
    255.255.255.255 ::ffff:127.0.0.1 ::ffff:8.8.8.8 64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::1 2002:7f00:1::
    2002:808:808:: 2001:0:1:1::1 ::127.0.0.1 ::ffff:0:127.0.0.1 2001:db8::1
"""
NEVER = [*SPECIAL.split(), "not an address"]


@pytest.mark.parametrize(
    ("address", "rules"), [*((one, STRICT) for one in (*PRIVATE, *NEVER)), *((one, LENIENT) for one in NEVER)]
)
def test_an_address_that_is_not_public_is_refused_and_metadata_multicast_and_disguises_everywhere(
    address: str, rules: NetworkSettings
) -> None:
    assert not destinations.is_allowed(address, rules)


RULES = ReceiverSettings.model_validate({"secret": SECRET})
ADDRESSES = {
    "public.example": ["93.184.216.34"],
    "inside.example": ["10.0.0.7"],
    "mixed.example": ["93.184.216.34", "127.0.0.1"],
    "metadata.google.internal": ["169.254.169.254"],
    "disguised.example": ["64:ff9b::7f00:1"],
}


def resolve(host: str, port: int) -> Sequence[str]:
    if host not in ADDRESSES and "example" in host:
        raise OSError("no such name")
    return ADDRESSES.get(host) or destinations.resolve_name(host, port)


INSIDE = """
    https://127.0.0.1/hook https://localhost/hook https://[::1]/hook https://2130706433/hook https://0x7f.1/hook
    https://0177.0.0.1/hook https://127.1/hook https://0/hook
    https://169.254.169.254/latest https://[fd00:ec2::254]/latest https://inside.example/hook
    https://mixed.example/hook https://metadata.google.internal/computeMetadata https://disguised.example/hook
"""


@pytest.mark.attack(70, 71, 72, 73, 76)
@pytest.mark.parametrize(
    ("url", "rules", "said"),
    [
        *((url, STRICT, "not a public") for url in INSIDE.split()),
        ("https://public.example/told", STRICT, ""),
        ("https://unknown.example/told", STRICT, ""),
        ("https://10.0.0.7/told", STRICT, "10.0.0.7 is not a public address"),
        ("https://inside.example/told", STRICT, "inside.example is not a public address"),
        ("https://printer.local/", STRICT, "not a public name"),
        ("https://metadata.unknown.internal/", STRICT, "not a public name"),
        ("http://localhost:8080/told", LENIENT, ""),
        ("https://169.254.169.254/latest", LENIENT, "not a public address"),
        ("http://public.example/told", STRICT, "callbacks go by https"),
        ("https://public.example/", NetworkSettings(hosts=("Public.example",)), ""),
        ("https://other.example/", NetworkSettings(hosts=("Public.example",)), "hosts"),
    ],
)
async def test_what_tells_against_a_url_is_said_before_anything_is_sent(
    url: str, rules: NetworkSettings, said: str
) -> None:
    flaw = await destinations.callback_check(RULES.model_copy(update={"network": rules}), resolve)(url)
    assert (said in flaw, bool(flaw)) == (True, bool(said))


async def test_a_name_server_that_does_not_answer_holds_up_no_wake() -> None:
    answered = threading.Event()

    def slow(host: str, port: int) -> Sequence[str]:
        answered.wait(10)
        return resolve(host, port)

    began = time.monotonic()
    assert await destinations.callback_check(RULES, slow)("https://inside.example/hook") == ""
    assert time.monotonic() - began < 5
    answered.set()
