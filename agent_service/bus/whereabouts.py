"""Finds a message of a run on the bus, and the consumers that it concerns. Reads only.

JetStream finds no message by its id: those of the subject are looked through, from the instant at which it was sent.
"""

import json
from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any

from nats.js.api import ConsumerConfig, DeliverPolicy

from agent_service.bus.reading import headers_of
from agent_service.telling.letters import Stored
from agent_service.telling.whereabouts import Holder, Whereabouts
from groundwork.nats.link import NatsLink
from groundwork.nats.patterns import matches
from groundwork.service.errors import TryAgain

BEFORE = timedelta(seconds=10)
MOST_LOOKED_AT = 10_000
MSG_ID = "Nats-Msg-Id"
ANSWER_WITHIN_S = 2.0


class NatsWhereabouts:
    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def of(self, stream: str, subject: str, key: str, since: datetime) -> Whereabouts | None:
        """The message of that key, and not one that took its id, where ours went out under `<key>#2`."""
        start = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=since - BEFORE)
        found, looked_at = None, 0
        async with aclosing(headers_of(self._link, stream, subject, start)) as messages:
            async for message in messages:
                looked_at += 1
                if message.headers.get(MSG_ID, "").partition("#")[0] == key:
                    found = message
                if looked_at == MOST_LOOKED_AT:
                    break
        if found is None and looked_at == MOST_LOOKED_AT:
            raise TryAgain(f"{stream} has too many messages on {subject} to look through")
        return await self._place(stream, found) if found else None

    async def _place(self, stream: str, message: Stored) -> Whereabouts:
        infos = await self._consumers(stream)
        holders = (_holder(info, message.seq) for info in infos if _takes(info, message.subject))
        return Whereabouts(stream=stream, seq=message.seq, at=message.at, holders=tuple(holders))

    async def _consumers(self, stream: str) -> list[dict[str, Any]]:
        answer = await self._link.request(f"$JS.API.CONSUMER.LIST.{stream}", b"", timeout_s=ANSWER_WITHIN_S)
        told: dict[str, Any] = json.loads(answer)
        return told.get("consumers") or []


def _takes(info: Mapping[str, Any], subject: str) -> bool:
    config = info["config"]
    patterns = config.get("filter_subjects") or [config.get("filter_subject") or ">"]
    return bool(config.get("durable_name")) and any(matches(pattern, subject) for pattern in patterns)


def _holder(info: Mapping[str, Any], seq: int) -> Holder:
    delivered, done = info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"]
    in_hand = int(info.get("num_ack_pending", 0))
    over = seq <= done or (seq <= delivered and not in_hand)
    return Holder(
        consumer=str(info["name"]),
        stands="done" if over else "in_hand" if seq <= delivered else "ahead",
        before=max(0, seq - delivered - 1),
        in_hand=in_hand,
        redelivered=int(info.get("num_redelivered", 0)),
        fetches=int(info.get("num_waiting", 0)),
    )
