"""Where a callback may go."""

import pytest

from ductile_gateway.outbound.destinations import Forbidden, check_address, flaw_of, lane_of, read_destination
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


def test_the_parts_of_a_url_are_those_that_are_connected_to() -> None:
    destination = read_destination("https://Example.org.:443/a/b?c=d#e", STRICT)
    assert (destination.host, destination.port, destination.target) == ("example.org", 443, "/a/b?c=d")
    assert destination.authority == "example.org"
    assert read_destination("http://[2001:4860::8]:8080", LENIENT).authority == "[2001:4860::8]:8080"


def test_other_ports_and_plain_http_are_allowed_by_name_only() -> None:
    assert read_destination("http://example.org:8080/", LENIENT).port == 8080
    with pytest.raises(Forbidden, match="port 8081"):
        read_destination("http://example.org:8081/", LENIENT)


def test_named_hosts_are_the_only_ones() -> None:
    rules = NetworkSettings(hosts=("Hooks.example.org",))
    assert read_destination("https://hooks.example.org/", rules).host == "hooks.example.org"
    with pytest.raises(Forbidden, match="hosts"):
        read_destination("https://example.org/", rules)


def test_a_refusal_repeats_nothing_of_the_url_but_its_host() -> None:
    with pytest.raises(Forbidden) as refused:
        read_destination("https://user:hunter2@example.org/token?secret=hunter2", STRICT)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "2a00:1450:4001::200e"])
def test_public_addresses_are_allowed(address: str) -> None:
    check_address(address, STRICT)


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


@pytest.mark.parametrize("address", PRIVATE)
def test_private_networks_can_be_allowed(address: str) -> None:
    check_address(address, LENIENT)


@pytest.mark.parametrize("address", NEVER)
def test_metadata_multicast_and_disguises_stay_refused_where_private_networks_are_allowed(address: str) -> None:
    with pytest.raises(Forbidden):
        check_address(address, LENIENT)


def test_a_lane_is_the_server_and_shows_no_path() -> None:
    assert lane_of("https://example.org/token?secret=1") == "https://example.org"
    assert lane_of("nonsense") == ""


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
