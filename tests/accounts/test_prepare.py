"""Files that deploy/nats/prepare.py makes, and keeps when it runs again."""

import re
import stat
from pathlib import Path

import pytest

from ductile_gateway.settings import GatewaySettings
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Misconfigured
from schemas.permissions import SHIPPED
from tests.accounts.house import prepare, served
from tests.kit.waiting import until

SERVERS = ("nats-server.conf", "accounts.conf", "here.conf")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    prepare(tmp_path / "nats", 4222)
    return tmp_path / "nats"


def texts(folder: Path) -> str:
    return "".join((folder / name).read_text() for name in SERVERS)


def test_everything_that_opens_something_is_for_its_owner_alone_and_the_server_has_none_of_it(folder: Path) -> None:
    secret = [*folder.glob("logins/*.nk"), *folder.glob("tls/*key.pem")]
    assert len(secret) == len(SHIPPED) + 2 + 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "logins", folder / "tls")} == {0o700}
    seeds = [path.read_text() for path in folder.glob("logins/*.nk")]
    assert not any(seed in texts(folder) for seed in seeds)
    assert re.findall(r"\bS[A-Z]{1,2}[A-Z2-7]{50,}", texts(folder)) == []


@pytest.mark.attack(96)
def test_nobody_gets_in_by_default_and_monitoring_stays_on_this_machine(folder: Path) -> None:
    said = "\n".join(line.partition("#")[0] for line in texts(folder).splitlines())
    assert "no_auth_user" not in said
    assert re.findall(r'^https?: "(.*)"', said, re.MULTILINE) == ["127.0.0.1:8222"]
    assert len(re.findall(r"nkey: U[A-Z2-7]{55}\b", said)) == len(SHIPPED) + 2
    assert "sync_interval: always" in said
    gateway = (folder / "logins" / "gateway.yaml").read_text()
    assert GatewaySettings.model_validate_json(gateway).require_signed_writes, "it would write what nobody signed"


def test_run_again_it_keeps_keys_certificates_and_what_was_changed(folder: Path) -> None:
    (folder / "nats-server.conf").write_text("# mine\n")
    before = {path: path.read_bytes() for path in (*folder.glob("logins/*.nk"), *folder.glob("tls/*.pem"))}
    prepare(folder, 4222, "--publisher", "shop")
    assert {path: path.read_bytes() for path in before} == before
    assert (folder / "nats-server.conf").read_text() == "# mine\n"
    assert "# shop" in (folder / "accounts.conf").read_text()
    assert (folder / "logins" / "shop.nk").is_file()


@pytest.mark.attack(97)
async def test_a_login_that_is_taken_away_is_out_at_once(tmp_path: Path) -> None:
    with served(tmp_path / "nats") as bus:
        async with bus.login("observer") as observer, bus.login("publisher") as publisher:
            accounts = bus.folder / "accounts.conf"
            accounts.write_text(re.sub(r"      { # observer\n(.|\n)*?\n      }\n", "", accounts.read_text()))
            bus.reload()
            await until(lambda: not observer.connected)
            assert publisher.connected
        with pytest.raises(Misconfigured, match="login is refused"):
            await connect(NatsSettings(**bus.section("observer"))).__aenter__()
