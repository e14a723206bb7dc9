"""The record of a lease (see lease): who has a role on the bus, as everybody can read it."""

import asyncio
import base64
import json
import os
import socket
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured, TryAgain
from groundwork.service.store_id import store_id

ASK_WITHIN_S = 2.0

_NO_MESSAGE, _AWAY = 10037, 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What is owned: `key` of `bucket`. `command` is what a person starts to take it over."""

    bucket: str
    key: str
    command: str

    @property
    def subject(self) -> str:
        return f"$KV.{self.bucket}.{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The record. `holder` is the id of a store, `since` an instant (ISO 8601); `epoch` counts the changes of hands."""

    holder: str
    host: str
    pid: int
    store: str
    since: str
    ttl_s: float
    epoch: int = 0
    released: bool = False

    @classmethod
    def here(cls, store: Path, *, ttl_s: float) -> Self:
        """This process, with the store in an existing folder. Raises OSError."""
        return cls(
            holder=store_id(store),
            host=socket.gethostname(),
            pid=os.getpid(),
            store=str(store.absolute()),
            since=datetime.now(UTC).isoformat(timespec="milliseconds"),
            ttl_s=ttl_s,
        )

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} with the store {self.store}, since {self.since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An owner as the bus has it. `age_s` is since `renewed_at`, both by the server's clock."""

    owner: Owner
    seq: int
    renewed_at: datetime
    age_s: float

    @property
    def free(self) -> bool:
        return self.owner.released or self.age_s >= self.owner.ttl_s


async def look(link: NatsLink, role: Role) -> Record | None:
    """Who has the role, or had it last. Raises TryAgain, or Misconfigured where the bucket is missing or unreadable."""
    wanted = json.dumps({"last_by_subj": role.subject}).encode()
    found, stream = await asyncio.gather(
        _ask(link, f"$JS.API.STREAM.MSG.GET.KV_{role.bucket}", wanted),
        _ask(link, f"$JS.API.STREAM.INFO.KV_{role.bucket}", b""),  # for the server's time
    )
    if found.get("error", {}).get("err_code") == _NO_MESSAGE:
        return None
    try:
        message = found["message"]
        owner = Owner(**json.loads(base64.b64decode(message["data"])))
        renewed_at = datetime.fromisoformat(message["time"])
        age = datetime.fromisoformat(stream["ts"]) - renewed_at
        return Record(owner=owner, seq=message["seq"], renewed_at=renewed_at, age_s=max(0.0, age.total_seconds()))
    except (KeyError, TypeError, ValueError) as error:
        why = (found.get("error") or stream.get("error") or {}).get("description") or "this is no record of ours"
        raise Misconfigured(
            f"the lease {role.key} in the bucket {role.bucket} cannot be read ({why}): run `agentic setup`, or remove "
            f"the record with `nats kv del {role.bucket} {role.key}`"
        ) from error


async def look_at_all(link: NatsLink, role: Role) -> list[Record]:
    """The records of all who share the role, each under a key of its own (`agent.store_…`). Raises as `look`."""
    wanted = json.dumps({"subjects_filter": f"{role.subject}.*"}).encode()
    info = await _ask(link, f"$JS.API.STREAM.INFO.KV_{role.bucket}", wanted)
    held = (info.get("state") or {}).get("subjects") or {}
    roles = (replace(role, key=subject.removeprefix(f"$KV.{role.bucket}.")) for subject in sorted(held))
    return [record for one in roles if (record := await look(link, one))]


async def _ask(link: NatsLink, subject: str, body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(await link.request(subject, body, timeout_s=ASK_WITHIN_S))
    except TryAgain as error:  # a denied request is not answered at all
        if link.violation:
            raise Misconfigured(f"the leases: {link.violation}. Give this user the permission") from error
        raise
    except ValueError as error:
        raise TryAgain(f"{subject}: not answered by JetStream") from error
    found: dict[str, Any] = answer if isinstance(answer, dict) else {}
    refused = found.get("error", {})
    if refused.get("code", 0) >= _AWAY:  # a cluster without a leader, for as long as it elects one
        raise TryAgain(f"{subject}: {refused.get('description')}")
    return found
