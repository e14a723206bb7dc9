"""What docs/BUS.md says that a role needs to be allowed on the bus is enough for it."""

import re
from pathlib import Path
from typing import Any

import pytest

from agent_service.bus.topology import topology
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import create_missing
from schemas import subjects
from schemas.catalog import Catalog
from tests.executors.shipped import PYTHON
from tests.gateway.parts import a_request, message_of
from tests.kit.bus import server_with
from tests.kit.waiting import until

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "BUS.md").read_text(encoding="utf-8")
KNOWN_TO_ALL = "only-for-this-test"


def allowed(role: str) -> dict[str, Any]:
    """The permissions of a role, by the page; an executor's are for `weekday`."""
    (row,) = re.findall(rf"^\| {role} \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    names = {"<executor>": PYTHON.executor, "<route>": PYTHON.tool}
    publish, subscribe = ([_named(one, names) for one in re.findall(r"`([^`]+)`", cell)] for cell in row)
    return {"publish": {"allow": publish}, "subscribe": {"allow": subscribe}}


def _named(subject: str, names: dict[str, str]) -> str:
    for placeholder, name in names.items():
        subject = subject.replace(placeholder, name)
    return subject


def server(role: str) -> dict[str, Any]:
    users = [
        {"user": "admin", "password": KNOWN_TO_ALL},
        {"user": "role", "password": KNOWN_TO_ALL, "permissions": allowed(role)},
    ]
    return {"authorization": {"users": users}}


async def login(address: str, user: str) -> NatsLink:
    return await connect(NatsSettings(urls=(f"nats://{address}",), user=user, password=KNOWN_TO_ALL))


async def test_an_executor_needs_no_more_than_its_row(tmp_path: Path, unused_port: int) -> None:
    config = {"jetstream": {"store_dir": str(tmp_path / "js"), "max_file_store": 64 << 30}} | server("executor")
    async with server_with(tmp_path, unused_port, config) as address:
        admin = await login(address, "admin")
        await create_missing(admin, topology(max_gib=1))
        with PYTHON.at_work(tmp_path, f"nats://role:{KNOWN_TO_ALL}@{address}"):

            async def offers() -> bool:
                try:
                    answer = await admin.client.request(subjects.CATALOG, b"", timeout=1)
                except Exception:  # noqa: BLE001 # it is not there yet
                    return False
                return Catalog.model_validate_json(answer.data).executor == PYTHON.executor

            await until(offers)
            request = a_request(tool=PYTHON.tool, payload=PYTHON.arguments)
            subject, body, headers = message_of(request, PYTHON.tool)
            await admin.publish(subject, body, msg_id="request", headers=headers)
            key = f"agentic:run:{request.run_id}:step:1:result"
            await until(lambda: has(admin, key))
        await admin.close()


async def has(link: NatsLink, key: str) -> bool:
    """Whether the stream of work stores a message under that id."""
    info = await link.jetstream.stream_info(subjects.STREAM)
    if not info.state.messages:
        return False
    message = await link.jetstream.get_msg(subjects.STREAM, info.state.last_seq)
    return (message.headers or {}).get("Nats-Msg-Id") == key


@pytest.mark.parametrize("role", ["publisher", "onlooker"])
async def test_publishers_and_onlookers_cannot_speak_as_an_executor(
    role: str, tmp_path: Path, unused_port: int
) -> None:
    async with server_with(tmp_path, unused_port, server(role)) as address:
        link = await login(address, "role")
        for subject in (subjects.TOOL_RESULT, subjects.CANCEL, subjects.COMPLETED):
            await link.send(subject, b"")
            await until(lambda subject=subject: subject in link.violation)  # type: ignore[misc]
        await link.close()
