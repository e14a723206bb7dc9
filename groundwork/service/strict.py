"""JSON and YAML from untrusted senders, read strictly: one meaning or none. No error quotes the content.

Refused are NaN and infinite numbers, repeated keys, halves of surrogate pairs, integers beyond 64 bits, encodings other
than UTF-8, and deep nesting; pydantic's reader takes some of these. The total size of all YAML aliases is bounded.
libyaml's loader is quicker, but deep nesting overflows its stack, which ends the process.
"""

import json
import math
import re
from itertools import chain
from typing import Any, NoReturn

import yaml
from pydantic import JsonValue

DEEPEST = 32
LARGEST = 2**63 - 1
_LONGEST_INTEGER = len(str(-LARGEST))
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""A surrogate can only come as an escape: otherwise the text is no UTF-8."""
_TOO_DEEP = f"is nested more than {DEEPEST} levels deep"


class NotStrictJson(ValueError):
    """The message gives the reason and quotes nothing of the content."""


def read(body: bytes, *, bare_breaks: bool = False) -> JsonValue:
    """`bare_breaks`: texts may hold line breaks and tabs as they are. Raises NotStrictJson."""
    try:
        value: JsonValue = (_LENIENT if bare_breaks else _READER).decode(body.decode())
        if body.count(b"{") + body.count(b"[") > DEEPEST:  # otherwise it cannot be deeper
            _check_depth(value)
        if _SURROGATE.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise NotStrictJson("is not UTF-8") from error
    except UnicodeEncodeError as error:
        raise NotStrictJson("holds half of a surrogate pair") from error
    except json.JSONDecodeError as error:
        raise NotStrictJson(f"is not JSON (line {error.lineno}, column {error.colno})") from error
    except RecursionError as error:
        raise NotStrictJson(_TOO_DEEP) from error
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [one for one in level if isinstance(one, (dict, list))]
        if not level:
            return
        level = list(chain.from_iterable(one.values() if isinstance(one, dict) else one for one in level))
    raise NotStrictJson(_TOO_DEEP)


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER or abs(number := int(digits)) > LARGEST:
        raise NotStrictJson("holds a whole number beyond 64 bits")
    return number


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise NotStrictJson("holds a number that is too large")
    return number


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotStrictJson("holds an object with the same key twice")
    return found


def _no_number(_: str) -> NoReturn:
    raise NotStrictJson("holds NaN or Infinity, which are not JSON")


_HOOKS: dict[str, Any] = {"object_pairs_hook": _object, "parse_float": _number, "parse_constant": _no_number}
_READER, _LENIENT = (json.JSONDecoder(strict=strict, parse_int=_integer, **_HOOKS) for strict in (True, False))


MOST_VALUES = 200_000
"""Values of a document, those behind each alias counted again."""


class NotYaml(Exception):
    """The message gives line and column, from 1, and how to write it."""


def parse(text: str) -> Any:
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _check_nodes([node] if node else [])
        return loader.construct_document(node) if node else None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:  # the last two for `!!bool maybe`
        place = _place(getattr(error, "problem_mark", None))
        raise NotYaml(f"not valid YAML{place}: check the indentation, and quote values with * & ! % @ : or #") from None
    except RecursionError:
        raise NotYaml("nested too deep") from None


def _check_nodes(nodes: list[yaml.Node]) -> None:
    for node in nodes:  # which grows; an alias within what it names has no end
        if len(nodes) > MOST_VALUES:
            raise NotYaml(f"its *aliases come to more than {MOST_VALUES:,} values: write out what is meant")
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        names = set[str]()
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            nodes += (key, value)
            if isinstance(key, yaml.ScalarNode):  # another one is refused later
                if key.value in names:
                    raise NotYaml(f"a key is given twice{_place(key.start_mark)}: keep one of them")
                names.add(key.value)


def _place(mark: yaml.Mark | None) -> str:
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
