"""What a NATS login may publish, by its permissions as the server tells them. Nothing is published to find out."""

from collections.abc import Iterable, Mapping
from typing import Any

from schemas import subjects

SAMPLE = "x"
"""Stands for any name or number in a subject."""

NEEDED = (
    subjects.START,
    subjects.tool_request(SAMPLE),
    subjects.WAKE_ACCEPTED,
    subjects.PROGRESS,
    subjects.COMPLETED,
    subjects.ESCALATED,
    subjects.FAILED,
    subjects.CANCELLED,
    subjects.DEAD_LETTERS_LOOP,
    subjects.DEAD_LETTERS_CONTROL,
    subjects.REJECTED,
    subjects.CATALOG,
    subjects.STATUS,
    f"$KV.{subjects.LEASE_BUCKET}.{subjects.LEASE_AGENT}",
    *(f"$JS.API.STREAM.{asked}.KV_{subjects.LEASE_BUCKET}" for asked in ("INFO", "MSG.GET")),
    *(
        f"$JS.API.CONSUMER.MSG.NEXT.{subjects.STREAM}.{name}"
        for name in (subjects.DURABLE_LOOP, subjects.DURABLE_CONTROL)
    ),
    *(f"$JS.ACK.{subjects.STREAM}.{name}.1.1.1.1.1" for name in (subjects.DURABLE_LOOP, subjects.DURABLE_CONTROL)),
)
"""What the agent publishes, a sample of each kind."""


def denied(permissions: Mapping[str, Any], wanted: Iterable[str] = NEEDED) -> list[str]:
    """Those of `wanted` that a login with these permissions (`publish: {allow, deny}`) may not publish."""
    publish = permissions.get("publish") or {}
    allow, deny = publish.get("allow"), publish.get("deny") or ()
    return [
        subject for subject in wanted if (allow and not _any_matches(allow, subject)) or _any_matches(deny, subject)
    ]


def _any_matches(patterns: Iterable[str], subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in patterns)


def matches(pattern: str, subject: str) -> bool:
    """Whether the subject is one of the pattern's: `*` stands for one token, `>` for one or more at the end."""
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, found = wanted[:-1], found[: len(wanted) - 1] if len(found) >= len(wanted) else []
    return len(wanted) == len(found) and all(w in ("*", f) for w, f in zip(wanted, found, strict=True))
