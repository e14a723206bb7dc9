"""The part of a tool's result that may be quoted.

Texts and numbers; names of fields only with their values. Not what the executor tells of the call, and not the
requested address, in which the caller can write anything.
"""

import json
from collections.abc import Iterator

from pydantic import JsonValue

from agent_service.core.acting import OF_THE_CALL
from agent_service.run.checks.citation import names_a_field, stands_in

ADDRESSES = ("url", "final_url")
LONGEST_ADDRESS = 4000
NOT_BROUGHT = OF_THE_CALL | {"said_by"}
_APART = "\n\0\n"


def texts_of(output: dict[str, JsonValue], quote: str) -> tuple[str, ...]:
    brought = {name: value for name, value in output.items() if name not in NOT_BROUGHT}
    if was_asked(output, quote):
        addresses = [address for name in ADDRESSES if isinstance(address := brought.pop(name, None), str) and address]
        return tuple(_without(addresses, text) for text in _leaves(brought))
    as_json = (json.dumps(brought, ensure_ascii=False, sort_keys=True),) if names_a_field(quote) else ()
    return *as_json, *_leaves(brought)


def was_asked(output: dict[str, JsonValue], quote: str) -> bool:
    asked = output.get(ADDRESSES[0])
    if not isinstance(asked, str) or len(asked) > LONGEST_ADDRESS:
        return False
    fields = (json.dumps({name: asked}, ensure_ascii=False) for name in ADDRESSES)
    return stands_in(quote, _APART.join((asked, *fields)))


def _without(addresses: list[str], text: str) -> str:
    for address in addresses:
        text = text.replace(address, " ")
    return text


def _leaves(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        if not any(isinstance(inner, dict | list) for inner in value):
            yield json.dumps(value, ensure_ascii=False)
        for inner in value:
            yield from _leaves(inner)
    elif value is not None:
        written = json.dumps(value, ensure_ascii=False)
        yield from dict.fromkeys((value, written[1:-1]) if isinstance(value, str) else (written,))
