"""`agentic doctor` on logins: what one may do is told, and no password ever shown."""

import json
from pathlib import Path

import httpx2
import pytest

from agent_service.cli.doctor.bus import NEEDED, denied
from groundwork.nats.publishing import matches
from groundwork.nats.settings import NatsSettings
from tests.cli.calling import agentic, interrupt, started
from tests.cli.examined import ITS_PASSWORD, configured, found, up
from tests.kit.bus import server_with


async def test_a_login_that_may_not_publish_everything_is_told_which(tmp_path: Path, unused_port: int) -> None:
    may = {"publish": {"allow": [">"], "deny": ["agent.completed", "agentic.tool_request.*"]}, "subscribe": ">"}
    users = {"users": [{"user": "agent", "password": ITS_PASSWORD, "permissions": may}]}
    config = {"authorization": users, "jetstream": {"store_dir": str(tmp_path / "js")}}
    async with server_with(tmp_path, unused_port, config) as address:
        url = f"nats://agent:{ITS_PASSWORD}@{address}"
        await up(address)
        checks = await found(configured(tmp_path, url))
        called = agentic("doctor", "--config", tmp_path / "agentic.yaml", "--json")
    assert (checks["permissions"].mark, checks["login"].mark) == ("wrong", "ok")
    assert "may not publish agentic.tool_request.x, agent.completed" in checks["permissions"].text
    assert ITS_PASSWORD not in str(checks) + called.out + called.err
    assert called.code == 1


@pytest.mark.attack(96)
async def test_a_bus_that_lets_in_anybody_is_told(tmp_path: Path, unused_port: int) -> None:
    async with server_with(tmp_path, unused_port, {"jetstream": {"store_dir": str(tmp_path / "js")}}) as address:
        await up(address)
        check = (await found(configured(tmp_path, f"nats://{address}")))["login"]
    assert check.mark == "warning"
    assert "lets in anybody" in check.text
    assert "deploy/nats/prepare.py" in check.remedy


@pytest.mark.attack(96)
async def test_a_bus_that_takes_strangers_for_a_user_is_told_though_we_have_a_login(
    tmp_path: Path, unused_port: int
) -> None:
    users = {"authorization": {"users": [{"user": "agent", "password": ITS_PASSWORD}]}, "no_auth_user": "agent"}
    async with server_with(tmp_path, unused_port, {**users, "jetstream": {"store_dir": str(tmp_path / "js")}}) as bus:
        await up(bus)
        check = (await found(configured(tmp_path, f"nats://agent:{ITS_PASSWORD}@{bus}")))["login"]
    assert check.mark == "warning"


@pytest.mark.attack(107)
@pytest.mark.parametrize(
    ("urls", "hosts"),
    [
        (["nats://bus.example.org:4222", "nats://127.0.0.1:4222"], ("bus.example.org",)),
        (["10.0.0.7:4222"], ("10.0.0.7",)),
        (["tls://bus.example.org:4222"], ()),
        (["nats://localhost", "nats://[::1]:4222"], ()),
    ],
)
def test_what_goes_to_another_machine_in_the_clear_is_known(urls: list[str], hosts: tuple[str, ...]) -> None:
    assert NatsSettings(urls=tuple(urls)).in_the_clear == hosts


async def test_a_refused_login_is_told_without_the_password(tmp_path: Path, unused_port: int) -> None:
    users = {"users": [{"user": "agent", "password": ITS_PASSWORD}]}
    async with server_with(tmp_path, unused_port, {"authorization": users}) as address:
        config = configured(tmp_path, f"nats://agent:wrong-password@{address}")
        await up(address)
        check = (await found(config))["nats"]
        served = agentic("serve", "--config", config)
        set_up = agentic("setup", "--config", config, "--json")
    assert check.mark == "wrong"
    assert "login is refused" in check.text
    assert (served.code, set_up.code) == (78, 78)
    assert "login is refused" in served.err
    assert len(served.err.splitlines()) <= 2
    assert "wrong-password" not in str(check) + served.err + set_up.err + set_up.out


async def test_a_password_in_the_address_of_the_bus_is_never_shown(tmp_path: Path, unused_port: int) -> None:
    users = {"users": [{"user": "agent", "password": ITS_PASSWORD}]}
    server = {"authorization": users, "jetstream": {"store_dir": str(tmp_path / "js")}}
    async with server_with(tmp_path, unused_port, server) as address:
        config = configured(tmp_path, f"nats://agent:{ITS_PASSWORD}@{address}")
        await up(address)
        said = str(agentic("setup", "--config", config))
        with started("serve", "--config", config) as agent:
            assert agent.stderr
            said += (ready := next(line for line in agent.stderr if '"ready"' in line))
            said += httpx2.get(f"{json.loads(ready)['http']}/readyz", trust_env=False).text
            interrupt(agent)
            said += agent.stderr.read()
        said += str(agentic("doctor", "--config", config)) + str(agentic("doctor", "--settings", "--config", config))
    assert json.loads(ready)["nats"] == f"nats://{address}"
    assert address in said
    assert ITS_PASSWORD not in said


@pytest.mark.parametrize(
    ("pattern", "subject", "fits"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("*.b", "a.b", True),
        ("a.b.c", "a.b", False),
        ("a.*.>", "a.b", False),
    ],
)
def test_subjects_match_patterns_as_the_server_matches_them(pattern: str, subject: str, fits: bool) -> None:
    assert matches(pattern, subject) is fits


def test_what_is_not_allowed_or_is_denied_is_denied() -> None:
    assert set(denied({"publish": {"allow": ["agentic.>"]}})) == {s for s in NEEDED if not s.startswith("agentic.")}
    assert denied({"publish": {"deny": ["agent.failed"]}}) == ["agent.failed"]
