"""`ductile-gateway trust` where several gateways share what they remember: it holds for all of them at once."""

from pathlib import Path

import pytest
from nats.aio.msg import Msg

from ductile_gateway.cli.trusting import trust
from ductile_gateway.settings import GatewaySettings
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from schemas import subjects
from schemas.signing import AgentKeys
from tests.kit.agent_keys import AGENT, STRANGER
from tests.kit.waiting import until
from tests.ledger.openers import joined, ledger_stream


async def test_what_a_person_trusts_anew_is_trusted_by_all_gateways(
    tmp_path: Path, some_server: EmbeddedNats, link: NatsLink, capsys: pytest.CaptureFixture[str]
) -> None:
    await ledger_stream(link, replicas=1)
    told = [AGENT.told()]

    async def answer(question: Msg) -> None:
        await question.respond(AgentKeys(keys=tuple(told)).model_dump_json().encode())

    await link.subscribe(subjects.AGENT_KEYS, answer)
    given = {"nats": {"urls": [some_server.url]}, "store": "jetstream"}
    settings = GatewaySettings.model_validate(given)
    async with joined(tmp_path, link, "a") as a, joined(tmp_path, link, "b") as b:
        await a.pins.trust(told)
        told[:] = [STRANGER.told()]
        assert not await trust(settings, again=False)
        shown = capsys.readouterr().out
        assert AGENT.public in shown
        assert f"told by the agent, and not trusted: {STRANGER.id}" in shown
        assert await trust(settings, again=True)
        await until(lambda: set(b.pins.all()) == {STRANGER.id} == set(a.pins.all()))
