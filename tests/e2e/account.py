"""What streams say of all runs when all is over, without a word of agents or gateways; and what each agent lists."""

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from nats.aio.msg import Msg

from groundwork.nats.link import NatsLink
from schemas import envelope, subjects
from tests.kit.stack import Answering, api, messages

TOLD_IN = (subjects.STREAM, subjects.STREAM_PROGRESS, subjects.STREAM_REQUESTS, subjects.STREAM_RESULTS)


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
    said: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often something was stored, by its subject and dedupe key."""

    def take(self, message: Msg) -> None:
        body, about = json.loads(message.data), message.headers or {}
        run_id = about.get(envelope.RUN_ID) or body["payload"].get("run_id", "")
        self.said_at[run_id].append(message.metadata.timestamp.timestamp())
        self.said[message.subject, str(body.get("dedupe_key"))] += 1
        if message.subject == subjects.WAKE_ACCEPTED:
            self.accepted[body["payload"]["wake_id"]].add(run_id)
        if message.subject in subjects.ENDINGS:
            self.endings[run_id][message.subject] += 1
            if message.subject != subjects.COMPLETED:
                # its beginning, without names, says the same of every run
                reason = re.sub(r"step \d+|\w+_[0-9A-Za-z]{16,}", "…", str(body["payload"].get("reason")))
                self.reasons[f"{message.subject}: {reason[:160]}"] += 1

    def silences(self, since: float, until: float) -> list[float]:
        """Of each run that was under way at `since`: the longest time from then on in which nothing was heard of it,
        of those that began before `until`."""
        under_way = (sorted(times) for times in self.said_at.values() if min(times) <= since < max(times))
        return [
            max(then - max(now, since) for now, then in pairwise(times) if then > since and now < until)
            for times in under_way
        ]

    def told(self) -> dict[str, Any]:
        """What may not be."""
        accepted = {run for runs in self.accepted.values() for run in runs}
        return {
            "acceptances_not_told": len(self.endings.keys() - accepted),
            "never_ended": sorted(accepted - self.endings.keys()),
            "ended_twice": sorted(run for run, ended in self.endings.items() if ended.total() > 1),
            "accepted_twice": sorted(wake for wake, runs in self.accepted.items() if len(runs) > 1),
            "said_twice": dict(Counter(subject for (subject, _), times in self.said.items() if times > 1)),
        }


async def account(link: NatsLink) -> Account:
    """Read all of it."""
    made = Account()
    for stream in TOLD_IN:
        async for message in messages(link, stream=stream):
            made.take(message)
    return made


async def holes(link: NatsLink) -> dict[str, int]:
    """How many messages of each stream are not there any more, of those from which nothing is taken or purged."""
    states = {name: (await link.jetstream.stream_info(name)).state for name in TOLD_IN}
    return {name: gone for name, state in states.items() if (gone := state.last_seq - state.messages)}


async def listed(agent: Answering) -> dict[str, dict[str, Any]]:
    """Every run, by its id, as this agent lists it."""
    found: dict[str, dict[str, Any]] = {}
    async with api(agent) as client:
        cursor: str | None = ""
        while cursor is not None:
            page = (await client.get("/v1/runs", params={"limit": 100} | ({"cursor": cursor} if cursor else {}))).json()
            found |= {line["run_id"]: line for line in page["runs"]}
            cursor = page["next_cursor"]
    return found
