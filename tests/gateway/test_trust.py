"""Authentication of the agent's messages: its keys, and keys endorsed by them."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from agent_service.trust.proofs import Signing
from agent_service.workbench.embedded_nats import EmbeddedNats
from ductile_gateway.trust import Pins, Trust
from groundwork.nats.link import NatsLink
from groundwork.service import machine
from groundwork.service.errors import GiveUp, TryAgain
from groundwork.service.keys import Key, KeyRing, write
from schemas import subjects
from schemas.signing import AgentKey, AgentKeys
from schemas.values import replace
from tests.gateway.parts import memory_rows
from tests.gateway.served import gateway
from tests.kit.agent_keys import AGENT, STRANGER, Signer

SUBJECT, BODY = "agent.completed", b'{"type": "agent.completed"}'
SECOND = Signer("second")


class Town:
    """A gateway and the agent that it knows, which tells these keys unless it is away."""

    def __init__(self, *keys: AgentKey) -> None:
        self.of_agent = keys
        self.agent_away = False
        self.pins = Pins(memory_rows())
        self.now = 0.0
        machine.use(replace(machine.this(), monotonic=lambda: self.now))
        self.trust = Trust(self.pins, self.keys)

    async def keys(self) -> Sequence[AgentKey]:
        if self.agent_away:
            raise TryAgain("no agent answers")
        return self.of_agent

    async def passes(self, signer: Signer, *, again: bool = False) -> bool:
        """True if a message of this signer is accepted. A second passes."""
        self.now += 1.0
        try:
            await self.trust.check(SUBJECT, BODY, signer.header(SUBJECT, BODY), again=again)
        except GiveUp:
            return False
        return True

    def told(self) -> str:
        return "\n".join(finding.text for finding in self.trust.findings())


@pytest.mark.parametrize(
    "header",
    [
        *(None, "", "agent.", "agent." + "A" * 86),
        AGENT.header("agent.failed", BODY),
        AGENT.header(SUBJECT, BODY + b" "),
        STRANGER.header(SUBJECT, BODY),
        STRANGER.header(SUBJECT, BODY).replace(STRANGER.id, AGENT.id),
    ],
)
async def test_what_the_agent_did_not_sign_is_not_believed_also_in_its_name(header: str | None) -> None:
    town = Town(AGENT.announced())
    with pytest.raises(GiveUp, match="not said by the agent"):
        await town.trust.check(SUBJECT, BODY, header)
    assert "1 messages since the start were not the agent's word" in town.told()


async def test_while_no_key_is_known_nothing_is_lost() -> None:
    town = Town()
    town.agent_away = True
    for signer in (AGENT, STRANGER):
        with pytest.raises(TryAgain):
            await town.passes(signer)
    assert town.told() == ""  # both may have just been started
    town.now += 11.0
    assert "no agent has told the keys that it signs with" in town.told()
    town.agent_away, town.of_agent = False, (AGENT.announced(),)
    assert await town.passes(AGENT, again=True)
    assert not await town.passes(STRANGER, again=True)


async def test_what_an_agent_tells_of_its_ring_is_followed_through_its_rotations(tmp_path: Path) -> None:
    ring = [Key.fresh()]
    write(tmp_path / "keys", ring)
    town = Town()
    for _ in range(3):
        signing = Signing(KeyRing.open(tmp_path / "keys"), tmp_path)
        town.of_agent = signing.public_keys().keys
        town.now += 1.0
        await town.trust.check(SUBJECT, BODY, signing.sign(SUBJECT, BODY))
        assert list(town.pins.all()) == [key.id for key in ring]
        ring = [Key.fresh(), *ring][:2]
        write(tmp_path / "keys", ring)


@pytest.mark.attack(98)
@pytest.mark.parametrize(
    "forged",
    [
        STRANGER.announced(),
        STRANGER.announced(endorsed_by=STRANGER),
        STRANGER.announced(endorsed_by=SECOND),
        STRANGER.announced(endorsed_by=AGENT, public=SECOND.public),
        STRANGER.announced(endorsed_by=AGENT, id="another"),
        STRANGER.announced(id=AGENT.id),
    ],
    ids=["alone", "by itself", "by an unknown one", "another key", "another name", "in the name of the known one"],
)
async def test_who_answers_in_the_agents_place_later_is_not_believed(forged: AgentKey) -> None:
    town = Town(AGENT.announced())
    assert await town.passes(AGENT)
    town.of_agent = (forged,)
    assert not await town.passes(STRANGER)
    assert not await town.passes(Signer("another"))
    assert town.pins.all() == {AGENT.id: AGENT.public}
    assert "the agent tells a key that is not trusted here" in town.told()
    assert any("stop the gateway, then `ductile-gateway trust --again`" in one.remedy for one in town.trust.findings())
    town.of_agent = (AGENT.announced(),)
    assert await town.passes(AGENT)


async def test_the_command_believes_an_agent_that_began_anew_only_when_it_is_told_to(
    tmp_path: Path, link: NatsLink, some_server: EmbeddedNats
) -> None:
    agent = [AGENT]

    async def answer(question: Msg) -> None:
        told = AgentKeys(keys=tuple(one.announced() for one in agent))
        await question.respond(told.model_dump_json().encode())

    async def trust(*options: str) -> tuple[int, str]:
        ended = await asyncio.to_thread(gateway, tmp_path, "trust", *options)
        return ended.returncode, ended.stdout

    settings = {"nats": {"urls": [some_server.url]}, "store": str(tmp_path / "store")}
    (tmp_path / "agentic.yaml").write_text(json.dumps({"gateway": settings}))
    assert (await trust("--again"))[0] == 75, "no agent answers"
    await link.subscribe(subjects.AGENT_KEYS, answer)
    code, said = await trust("--again")
    assert (code, f"{AGENT.id} {AGENT.public}\n" in said, "trusted since" in said) == (0, True, True)
    agent[0] = STRANGER
    code, said = await trust()
    assert (code, f"told by the agent, and not trusted: {STRANGER.id} {STRANGER.public}" in said) == (1, True)
    code, said = await trust("--again")
    assert (code, STRANGER.public in said, AGENT.public in said) == (0, True, False)
    given = {"outbound": {"agent_keys": [AGENT.public]}}
    (tmp_path / "agentic.yaml").write_text(json.dumps({"gateway": settings | given}))
    code, said = await trust()
    assert (code, "name them in gateway.outbound.agent_keys" in said) == (1, True)
