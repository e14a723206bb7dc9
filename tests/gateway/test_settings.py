"""Settings of the gateway: accepted values and their meaning."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ductile_gateway.plugins.boxes import box_of
from ductile_gateway.settings import GatewaySettings, load
from groundwork.service.errors import Misconfigured


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
