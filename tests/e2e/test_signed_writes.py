"""A stack whose gateway writes nothing that the agent did not sign: its runs write, and others on the bus do not."""

import json
from pathlib import Path

import pytest

from agent_service.workbench.dev import DevStack
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from schemas import keys, subjects
from tests.e2e.bodies import PROBES, on_the_bus, recording, running, to_the_end, wake
from tests.kit.waiting import until

FORGED = "run_01JD0000000000000000000000"


@pytest.mark.attack(98)
async def test_a_run_writes_and_who_may_publish_requests_does_not(tmp_path: Path) -> None:
    (out := tmp_path / "out").mkdir()
    written, evil = out / "written", out / "evil"
    plugins = {"folders": [str(PROBES)], "write": [str(out)]}
    gateway = {"require_signed_writes": True, "plugins": plugins}
    async with running(tmp_path / "stack", recording(written), gateway=gateway) as made:
        ended = await to_the_end(made, await wake(made))
        assert [(step["command"], step["status"]) for step in ended["steps"]] == [("record", "ok")] * 2
        (asked, _) = await on_the_bus(made, subjects.tool_request("probe"))
        forged = asked | {"run_id": FORGED, "tool_payload": {"file": str(evil)}}
        link = await connect(NatsSettings(urls=(made.nats.url,)))
        body = json.dumps({"type": subjects.tool_request("probe"), "payload": forged}).encode()
        await link.publish(subjects.tool_request("probe"), body, msg_id=keys.request(FORGED, 1, 1), headers={})
        await until(lambda: refused(made, FORGED))
        await link.close()
    assert written.read_text().count("\n") == 2
    assert not evil.exists()


async def refused(made: DevStack, run_id: str) -> bool:
    """Whether it was told that a message about the run counts for nothing."""
    told = await on_the_bus(made, subjects.REJECTED)
    return any(one["run_id"] == run_id and "not said by the agent" in one["reason"] for one in told)
