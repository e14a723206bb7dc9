"""What the gateway remembers beside its calls, whatever keeps it: events from outside, late jobs, the agent's keys."""

from schemas.signing import AgentKey
from tests.ledger.openers import Opener

FIRST, SECOND_KEY = AgentKey(id="k1", public="A" * 43), AgentKey(id="k2", public="B" * 43)


async def test_the_agents_keys_are_those_that_were_pinned_last_and_each_says_since_when(opener: Opener) -> None:
    async with opener() as stores:
        assert stores.pins.all() == {}
        await stores.pins.trust([FIRST])
        await stores.pins.trust([SECOND_KEY, FIRST])
    async with opener() as stores:
        assert list(stores.pins.all().items()) == [("k2", SECOND_KEY.public), ("k1", FIRST.public)]
        await stores.pins.trust([SECOND_KEY])
        assert stores.pins.all() == {"k2": SECOND_KEY.public}
