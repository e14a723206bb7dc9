"""Permissions of roles follow from the streams and consumers of the program; and files that prepare.py makes."""

import re
import stat
from pathlib import Path

import pytest
from nats.js.errors import APIError

from agent_service.bus.topology import topology
from agent_service.cli.doctor.bus import NEEDED, denied
from ductile_gateway.settings import GatewaySettings
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.publishing import subject_matches
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import set_up
from groundwork.service.errors import Failure, Misconfigured
from schemas import permissions, subjects
from schemas.permissions import SHIPPED, RoleName, permissions_of
from tests.accounts.house import prepare, served
from tests.kit.waiting import until

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "BUS.md").read_text(encoding="utf-8")
TOLD: tuple[RoleName, ...] = ("publisher", "observer", "approver", "operator", "executor")
KEPT = {
    subjects.STREAM: subjects.COMPLETED,
    subjects.STREAM_STARTS: subjects.START,
    subjects.STREAM_RESULTS: subjects.TOOL_RESULT,
}


@pytest.mark.parametrize("role", TOLD)
def test_the_page_on_the_bus_says_what_a_role_may_do(role: RoleName) -> None:
    may = permissions_of(role, "<name>")
    (row,) = re.findall(rf"^\| {role} \|(.*)\|(.*) \|$", PAGE, re.MULTILINE)
    publish, subscribe = (re.findall(r"`([^`]+)`", cell) for cell in row)
    assert sorted(publish) == sorted(subject for subject in may.publish if not subject.startswith("$"))
    assert sorted(subscribe) == sorted(may.subscribe)


def test_the_roles_know_all_streams_and_consumers_and_no_others() -> None:
    made = {one.stream for one in topology()}
    assert {*permissions.STREAMS, *permissions.BUCKETS} == made
    consumers = {*permissions.AGENT_CONSUMERS, *permissions.GATEWAY_CONSUMERS}
    several = topology(shared=True)
    assert consumers == {f"{one.stream}.{one.consumer}" for one in several if one.consumer}
    assert {one.stream for one in several} - made == set(permissions.SHARED_STREAMS)


@pytest.mark.parametrize(("role", "key"), [("agent", subjects.LEASE_AGENT), ("gateway", subjects.LEASE_GATEWAY)])
def test_who_shares_a_store_may_renew_a_lease_of_its_own(role: RoleName, key: str) -> None:
    other = f"$KV.{subjects.LEASE_BUCKET}.{subjects.lease_key(key, 'store_0123456789abcdef')}"
    may = permissions_of(role, role)
    assert any(subject_matches(pattern, other) for pattern in may.publish)


def test_an_agent_may_look_at_all_that_its_start_and_the_doctor_ask_for() -> None:
    may = permissions_of("agent", "agent").publish
    assert denied({"publish": {"allow": may}}, NEEDED) == []
    for stream in {one.stream for one in topology(shared=True)}:
        assert any(subject_matches(pattern, f"$JS.API.STREAM.INFO.{stream}") for pattern in may), stream


async def test_what_is_stored_by_several_gives_way_to_nothing_and_may_be_let_go_by_a_rule(link: NatsLink) -> None:
    await set_up(link, topology(max_gib=1, shared=True))
    fact = subjects.stored_run("wake", "run_1")
    kept = await link.publish(fact, b"theirs", msg_id="theirs", headers={})
    with pytest.raises(APIError):
        await link.client.jetstream().delete_msg(subjects.STREAM_RUNS, kept.seq)
    config = (await link.client.jetstream().stream_info(subjects.STREAM_RUNS)).config
    assert (config.discard, config.max_age or 0) == ("new", 0)
    await link.client.jetstream().purge_stream(subjects.STREAM_RUNS, subject=fact)
    assert (await link.client.jetstream().stream_info(subjects.STREAM_RUNS)).state.messages == 0


@pytest.mark.parametrize("stream", KEPT)
async def test_no_login_and_no_header_of_a_message_takes_a_message_of_work_away(stream: str, link: NatsLink) -> None:
    await set_up(link, topology(max_gib=1))
    kept = (await link.publish(KEPT[stream], b"theirs", msg_id="theirs", headers={})).seq
    for deed in (link.client.jetstream().purge_stream(stream), link.client.jetstream().delete_msg(stream, kept)):
        with pytest.raises(APIError):
            await deed
    for header in ({"Nats-Rollup": "all"}, {"Nats-Rollup": "sub"}, {"Nats-TTL": "1s"}):
        with pytest.raises(Failure):
            await link.publish(KEPT[stream], b"mine", msg_id=str(header), headers=header, within_s=0.2)
    assert (await link.client.jetstream().stream_info(stream)).state.messages == 1


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
