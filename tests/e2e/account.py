"""What streams say of all runs when all is over, without a word of agents or gateways; and what each agent lists."""

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx2
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig

from groundwork.nats.link import NatsLink
from schemas import envelope, subjects
from tests.kit.fleet import Member

TOLD_IN = (subjects.STREAM, subjects.STREAM_PROGRESS, subjects.STREAM_REQUESTS, subjects.STREAM_RESULTS)
SILENT_S = 2.0


@dataclass(slots=True)
class Account:
    """Runs by their ids, in the words of the streams. Times by the streams' clock, in seconds."""

    accepted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The runs of a wake."""
    endings: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    reasons: Counter[str] = field(default_factory=Counter)
    """Why runs were not done."""
    said_at: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When anything was stored of a run."""
    said: Counter[str] = field(default_factory=Counter)
    """How often something was stored, by what it is: its dedupe key, or id."""

    def take(self, message: Msg) -> None:
        body, about = json.loads(message.data), message.headers or {}
        run_id = about.get(envelope.RUN_ID) or body["payload"].get("run_id", "")
        self.said_at[run_id].append(message.metadata.timestamp.timestamp())
        self.said[f"{message.subject} {body.get('dedupe_key')}"] += 1
        if message.subject == subjects.WAKE_ACCEPTED:
            self.accepted[body["payload"]["wake_id"]].add(run_id)
        if message.subject in subjects.ENDINGS:
            self.endings[run_id][message.subject] += 1
            if message.subject != subjects.COMPLETED:
                self.reasons[f"{message.subject}: {_without_names(str(body['payload'].get('reason')))}"] += 1

    def silences(self, since: float, until: float) -> list[float]:
        """Of each run that was under way at `since`: the longest time from then on in which nothing was heard of it,
        of those that began before `until`."""
        under_way = (sorted(times) for times in self.said_at.values() if min(times) <= since < max(times))
        return [
            max(then - max(now, since) for now, then in pairwise(times) if then > since and now < until)
            for times in under_way
        ]

    @property
    def never_ended(self) -> set[str]:
        return {run for runs in self.accepted.values() for run in runs} - self.endings.keys()

    @property
    def ended_unaccepted(self) -> set[str]:
        """Nobody was told that they were accepted."""
        return self.endings.keys() - {run for runs in self.accepted.values() for run in runs}

    @property
    def ended_twice(self) -> set[str]:
        return {run for run, ended in self.endings.items() if ended.total() > 1}

    @property
    def accepted_twice(self) -> set[str]:
        return {wake for wake, runs in self.accepted.items() if len(runs) > 1}

    @property
    def said_twice(self) -> Counter[str]:
        """What was stored more than once, by its subject."""
        return Counter(what.split()[0] for what, times in self.said.items() if times > 1)


def _without_names(reason: str) -> str:
    """Its beginning, which says the same of every run."""
    return re.sub(r"step \d+|\w+_[0-9A-Za-z]{16,}", "…", reason)[:160]


async def account(link: NatsLink) -> Account:
    """Read all of it."""
    made = Account()
    for stream in TOLD_IN:
        async for message in messages(link, stream):
            made.take(message)
    return made


async def holes(link: NatsLink) -> dict[str, int]:
    """How many messages of each stream are not there any more, of those from which nothing is taken or purged."""
    states = {name: (await link.jetstream.stream_info(name)).state for name in TOLD_IN}
    return {name: gone for name, state in states.items() if (gone := state.last_seq - state.messages)}


async def messages(link: NatsLink, stream: str) -> AsyncIterator[Msg]:
    """All that the stream holds now."""
    info: Any = await link.jetstream.stream_info(stream)
    if not info.state.messages:
        return
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await link.jetstream.subscribe("", stream=stream, ordered_consumer=True, config=config)
    try:
        async for message in subscription.messages:
            yield message
            if message.metadata.sequence.stream >= info.state.last_seq:
                return
    finally:
        await asyncio.wait_for(subscription.unsubscribe(), SILENT_S)


async def listed(agent: Member) -> dict[str, dict[str, Any]]:
    """Every run, by its id, as this agent lists it."""
    found: dict[str, dict[str, Any]] = {}
    async with httpx2.AsyncClient(base_url=agent.url, trust_env=False, timeout=30) as client:
        cursor: str | None = ""
        while cursor is not None:
            page = (await client.get("/v1/runs", params={"limit": 100} | ({"cursor": cursor} if cursor else {}))).json()
            found |= {line["run_id"]: line for line in page["runs"]}
            cursor = page["next_cursor"]
    return found
