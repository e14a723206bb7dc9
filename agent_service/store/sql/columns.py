"""Instants as the columns hold them: whole microseconds since 1970 UTC, exact both ways."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


def instant(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
