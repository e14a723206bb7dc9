"""Where a callback may go."""

import pytest

from ductile_gateway.outbound.destinations import Forbidden, check_address, flaw_of, read_destination
from ductile_gateway.outbound.settings import NetworkSettings

STRICT = NetworkSettings()
LENIENT = NetworkSettings(allow_private=True, allow_http=True, ports=(8080,))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "ftp://example.org/",
        "//example.org/",
        "https:///path",
        "https://user@example.org/",
        "https://user:secret@example.org/",
        "https://@example.org/",
        "https://example.org:22/",
        "https://example.org:99999/",
        "https://exa\\mple.org/",
        "https://example.org\\@127.0.0.1/",
        "https://exämple.org/",
        "https://exam ple.org/",
        "https://example.org/\r\nHost: x",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://0/",
        "https://1.2.3.4.5/",
        "https://example.0x1/",
        "https://[fe80::1%25eth0]/",
        "https://[::1/",
        "https://example..org/",
        f"https://example.org/{'x' * 3000}",
    ],
)
def test_a_url_that_is_no_plain_https_address_of_a_host_is_refused(url: str) -> None:
    with pytest.raises(Forbidden):
        read_destination(url, STRICT)


PRIVATE = ["127.0.0.1", "127.9.9.9", "::1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "fd00::1"]
NEVER = [
    "0.0.0.0",  # noqa: S104 - an address to be refused
    "::",
    "169.254.169.254",
    "fe80::1",
    "fec0::1",
    "fe80::1%eth0",
    "100.64.0.1",
    "192.0.0.8",
    "198.18.0.1",
    "224.0.0.1",
    "ff02::1",
    "240.0.0.1",
    "255.255.255.255",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "2001:0:1:1::1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "2001:db8::1",
    "not an address",
]


@pytest.mark.parametrize("address", [*PRIVATE, *NEVER])
def test_any_other_address_is_refused(address: str) -> None:
    with pytest.raises(Forbidden):
        check_address(address, STRICT)


@pytest.mark.parametrize("address", NEVER)
def test_metadata_multicast_and_disguises_stay_refused_where_private_networks_are_allowed(address: str) -> None:
    with pytest.raises(Forbidden):
        check_address(address, LENIENT)


@pytest.mark.parametrize(
    ("url", "rules", "said"),
    [
        ("https://example.org/told", STRICT, ""),
        ("https://10.0.0.7/told", STRICT, "not a public address"),
        ("https://[::1]/told", STRICT, "not a public address"),
        ("https://localhost/told", STRICT, "not a public name"),
        ("https://metadata.google.internal/", STRICT, "not a public name"),
        ("https://printer.local/", STRICT, "not a public name"),
        ("http://localhost:8080/told", LENIENT, ""),
        ("https://169.254.169.254/latest", LENIENT, "not a public address"),
        ("http://example.org/told", STRICT, "callbacks go by https"),
        ("https://127.1/told", LENIENT, "no IP address in its usual form"),
    ],
)
def test_what_a_url_itself_tells_against_it_is_said_before_anything_is_sent(
    url: str, rules: NetworkSettings, said: str
) -> None:
    flaw = flaw_of(url, rules)
    assert said in flaw
    assert bool(flaw) == bool(said)


def test_named_hosts_are_the_only_ones() -> None:
    rules = NetworkSettings(hosts=("Hooks.example.org",))
    assert read_destination("https://hooks.example.org/", rules).host == "hooks.example.org"
    with pytest.raises(Forbidden, match="hosts"):
        read_destination("https://example.org/", rules)
