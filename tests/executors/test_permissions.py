"""What docs/BUS.md says that roles may do is what they are given, and enough for an executor that is shipped."""

import re
from pathlib import Path
from typing import Any

import pytest

from agent_service.bus.topology import Executor, topology
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import create_missing
from schemas import subjects
from schemas.catalog import Catalog
from schemas.permissions import RoleName, inbox_of, permissions_of
from tests.executors.shipped import PYTHON
from tests.gateway.parts import a_request, message_of
from tests.kit.bus import server_with
from tests.kit.waiting import until

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "BUS.md").read_text(encoding="utf-8")
KNOWN_TO_ALL = "only-for-this-test"
NAME = PYTHON.executor
TOLD: tuple[RoleName, ...] = ("publisher", "observer", "approver", "operator", "executor")


@pytest.mark.parametrize("role", TOLD)
def test_the_page_says_what_a_role_may_do(role: RoleName) -> None:
    may = permissions_of(role, "<name>")
    (row,) = re.findall(rf"^\| {role} \|(.*)\|(.*) \|$", PAGE, re.MULTILINE)
    publish, subscribe = (re.findall(r"`([^`]+)`", cell) for cell in row)
    assert sorted(publish) == sorted(subject for subject in may.publish if not subject.startswith("$"))
    assert sorted(subscribe) == sorted(may.subscribe)


def server(role: RoleName) -> dict[str, Any]:
    may = permissions_of(role, NAME)
    permissions = {"publish": {"allow": may.publish}, "subscribe": {"allow": may.subscribe}}
    answers = {"allow_responses": True} if may.answers else {}
    users = [
        {"user": "admin", "password": KNOWN_TO_ALL},
        {"user": "role", "password": KNOWN_TO_ALL, "permissions": permissions | answers},
    ]
    return {"authorization": {"users": users}}


async def login(address: str, user: str) -> NatsLink:
    prefix = inbox_of(NAME) if user == "role" else "_INBOX"
    urls = (f"nats://{address}",)
    return await connect(NatsSettings(urls=urls, user=user, password=KNOWN_TO_ALL, inbox_prefix=prefix))


async def test_an_executor_needs_no_more_than_its_row(tmp_path: Path, unused_port: int) -> None:
    config = {"jetstream": {"store_dir": str(tmp_path / "js"), "max_file_store": 64 << 30}} | server("executor")
    async with server_with(tmp_path, unused_port, config) as address:
        admin = await login(address, "admin")
        await create_missing(admin, topology(max_gib=1, executors=[Executor.read(f"{NAME}={PYTHON.tool}")]))
        with PYTHON.at_work(tmp_path, f"nats://role:{KNOWN_TO_ALL}@{address}", NATS_INBOX_PREFIX=inbox_of(NAME)):

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
    """Whether the newest result is stored under that id."""
    info = await link.jetstream.stream_info(subjects.STREAM_RESULTS)
    if not info.state.messages:
        return False
    message = await link.jetstream.get_msg(subjects.STREAM_RESULTS, info.state.last_seq)
    return (message.headers or {}).get("Nats-Msg-Id") == key
