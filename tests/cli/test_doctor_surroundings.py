"""`agentic doctor` and `agentic setup` on what is around the agent: its gateway, its port, the room on the server."""

import json
from pathlib import Path
from typing import Any

import pytest

from groundwork.nats.embedded import EmbeddedNats
from tests.cli.calling import agentic, interrupt, started
from tests.cli.examined import configured, found


@pytest.mark.parametrize(
    ("section", "mark", "says"),
    [
        ({"runner": "plugins"}, "ok", "can be used"),
        ({"runer": "ductile"}, "wrong", "runer"),
        ({"runner": "ductile", "ductile": {"url": "http://127.0.0.1:1", "token": "${NOWHERE}"}}, "wrong", "NOWHERE"),
    ],
)
async def test_the_section_of_the_gateway_is_checked_by_the_gateway(
    tmp_path: Path, section: dict[str, Any], mark: str, says: str
) -> None:
    config = configured(tmp_path)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"gateway": section}))
    check = (await found(config))["gateway section"]
    assert (check.mark, says in check.text) == (mark, True), check


async def test_an_agent_with_another_store_on_the_port_is_not_called_the_one_that_is_configured(
    tmp_path: Path, unused_port: int
) -> None:
    async with EmbeddedNats(tmp_path / "nats", sync_interval="1s") as nats:
        mine, others = (tmp_path / name for name in ("mine", "others"))
        mine.mkdir()
        others.mkdir()
        running = configured(others, nats.url, http={"port": unused_port})
        assert agentic("setup", "--config", running, "--max-gib", "1").code == 0
        with started("serve", "--config", running) as agent:
            assert agent.stderr
            assert any('"ready"' in line for line in agent.stderr)
            its_own = (await found(running))["http"]
            strange = (await found(configured(mine, nats.url, http={"port": unused_port})))["http"]
            interrupt(agent)
    assert "has another store" not in its_own.text
    assert (strange.mark, "not the one that is configured here" in strange.text) == ("wrong", True), strange
