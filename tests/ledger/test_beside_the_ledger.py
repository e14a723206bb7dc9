"""What the gateway remembers beside its calls, whatever keeps it: events from outside, late jobs, the agent's keys."""

from ductile_gateway.calls.call import Receipt
from ductile_gateway.ductile.watch import Job, OverdueJob
from ductile_gateway.store.stores import Stores
from schemas.signing import AgentKey
from tests.gateway.parts import NOON
from tests.ledger.openers import Opener
from tests.ledger.test_ledger import SECOND, an_intent

FIRST, SECOND_KEY = AgentKey(id="k1", public="A" * 43), AgentKey(id="k2", public="B" * 43)


async def test_an_event_from_outside_is_known_by_its_source_and_identity_and_its_first_key_stays(
    stores: Stores,
) -> None:
    for key in ("first", "second"):
        await stores.deliveries.record("peer", "delivery-1", event_key=key, at=NOON)
    assert await stores.deliveries.find("peer", "delivery-1") == "first"
    assert await stores.deliveries.find("another", "delivery-1") is None


async def test_events_from_outside_are_forgotten_by_age(stores: Stores) -> None:
    for number in range(3):
        await stores.deliveries.record("peer", f"d-{number}", event_key="key", at=NOON + number * SECOND)
    await stores.deliveries.forget_before(NOON + 2 * SECOND)
    assert [await stores.deliveries.find("peer", f"d-{number}") for number in range(3)] == [None, None, "key"]


async def test_late_jobs_are_there_after_a_restart_the_longest_overdue_first_until_they_are_dropped(
    opener: Opener,
) -> None:
    one, other = an_intent(1), an_intent(2)
    async with opener() as stores:
        for intent, since in ((one, NOON + SECOND), (other, NOON)):
            await stores.ledger.intend(intent, Receipt(NOON))
            await stores.overdue.add(intent.key, Job(f"j-{intent.key}", pipeline=True), since)
        await stores.overdue.add(one.key, Job("again", pipeline=False), NOON)
    async with opener() as stores:
        late = [OverdueJob(one.key, Job(f"j-{one.key}", pipeline=True), NOON + SECOND)]
        assert stores.overdue.all() == [OverdueJob(other.key, Job(f"j-{other.key}", pipeline=True), NOON), *late]
        await stores.overdue.drop(other.key)
        assert stores.overdue.all() == late


async def test_the_agents_keys_are_those_that_were_pinned_last_and_each_says_since_when(opener: Opener) -> None:
    async with opener() as stores:
        assert stores.pins.all() == {}
        await stores.pins.trust([FIRST])
        await stores.pins.trust([SECOND_KEY, FIRST])
    async with opener() as stores:
        assert list(stores.pins.all().items()) == [("k2", SECOND_KEY.public), ("k1", FIRST.public)]
        await stores.pins.trust([SECOND_KEY])
        assert stores.pins.all() == {"k2": SECOND_KEY.public}
