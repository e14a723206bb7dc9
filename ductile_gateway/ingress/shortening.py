"""Payloads of events made shorter, whatever is in them: texts are cut with a mark, lists lose their end. Pure.

What says where the whole is to be found stays as it is: the run's id and the address of its trace.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ductile_gateway.calls.excerpts import cut

KEPT = ("run_id", "trace_url")
LONGEST_KEPT = 2048
LEVELS = 8
_LONGEST_TEXT, _LONGEST_LIST = 8192, 128
_HALVINGS = 7


def shortened(payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Ever shorter forms of the payload; the last has nothing but what is kept, in 13 kB at most."""
    kept = {name: payload[name] for name in KEPT if name in payload and len(str(payload[name])) <= LONGEST_KEPT}
    for halvings in range(_HALVINGS + 1):
        text, items = _LONGEST_TEXT >> halvings, _LONGEST_LIST >> halvings
        yield {name: _short(value, text, items, levels=LEVELS) for name, value in payload.items()} | kept
    yield kept


def _short(value: Any, text: int, items: int, *, levels: int) -> Any:
    match value:
        case str():
            return cut(value, text)
        case list() | dict() if not levels:
            return None
        case list():
            return [_short(item, text, items, levels=levels - 1) for item in value[:items]]
        case dict():
            return {name: _short(item, text, items, levels=levels - 1) for name, item in value.items()}
    return value
