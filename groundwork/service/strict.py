"""JSON and YAML from strangers, read strictly: one meaning or none. No error quotes the content.

Refused are NaN and infinite numbers, repeated keys, halves of surrogate pairs, numbers beyond 64 bits, encodings other
than UTF-8, and deep nesting; pydantic's reader takes some of these. Values are looked at level by level: a call for
each would cost us more than their sender. The total of all YAML aliases has a bound.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NoReturn

import yaml
from pydantic import JsonValue

DEEPEST = 32
LARGEST = 2**63 - 1
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""A surrogate can only come as an escape: as such it is no UTF-8."""


class NotStrictJson(ValueError):
    """The text says why; nothing of what was sent is in it."""


def read(body: bytes) -> JsonValue:
    try:
        value: JsonValue = _READER.decode(body.decode())
    except UnicodeDecodeError as error:
        raise NotStrictJson("is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise NotStrictJson(f"is not JSON (line {error.lineno}, column {error.colno})") from error
    except RecursionError as error:
        raise NotStrictJson(_TOO_DEEP) from error
    except NotStrictJson:
        raise
    except ValueError as error:  # Python reads no whole number of more than some thousand digits
        raise NotStrictJson(_TOO_LONG) from error
    _check(value, escapes=_HALF.search(body) is not None)
    return value


def _check(value: JsonValue, *, escapes: bool) -> None:
    level: Sequence[JsonValue] = [value]
    for _ in range(DEEPEST + 1):
        kinds = set(map(type, level))
        if int in kinds:
            _check_whole([one for one in level if type(one) is int])
        if float in kinds and not all(map(math.isfinite, [one for one in level if type(one) is float])):
            raise NotStrictJson("holds a number that is too large")
        objects = [one for one in level if type(one) is dict] if dict in kinds else []
        if escapes:
            _check_texts(chain(level, *objects))
        if not kinds & {dict, list}:
            return
        lists = [one for one in level if type(one) is list] if list in kinds else []
        level = list(chain.from_iterable([*lists, *(one.values() for one in objects)]))
    raise NotStrictJson(_TOO_DEEP)


def _check_whole(numbers: Sequence[int]) -> None:
    if not -LARGEST <= min(numbers) <= max(numbers) <= LARGEST:
        raise NotStrictJson(_TOO_LONG)


def _check_texts(values: Iterable[JsonValue]) -> None:
    try:
        "".join(one for one in values if type(one) is str).encode()
    except UnicodeEncodeError as error:
        raise NotStrictJson("holds half of a surrogate pair") from error


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotStrictJson("holds an object with the same key twice")
    return found


def _no_number(_: str) -> NoReturn:
    raise NotStrictJson("holds NaN or Infinity, which are not JSON")


_TOO_DEEP = f"is nested more than {DEEPEST} levels deep"
_TOO_LONG = "holds a whole number beyond 64 bits"
_READER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_number)


MOST_VALUES = 200_000
"""That aliases may add to a document, each counted with all that it names."""


class NotYaml(Exception):
    """The text is not acceptable; the message says where (line and column from 1) and how to write it."""


def parse(text: str) -> Any:
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        nodes = _Nodes()
        if node and nodes.weigh(node) - len(nodes.weights) > MOST_VALUES:
            raise NotYaml(f"its *aliases come to more than {MOST_VALUES:,} values: write out what is meant")
        data = loader.construct_document(node) if node else None
    except (yaml.YAMLError, ValueError) as error:
        place = _place(getattr(error, "problem_mark", None))
        raise NotYaml(f"not valid YAML{place}: check the indentation, and quote values with * & ! % @ : or #") from None
    except RecursionError:
        raise NotYaml("nested too deep, or an *alias stands within what it names") from None
    if nodes.repeated:
        raise NotYaml(f"a key is given twice{_place(nodes.repeated.start_mark)}: keep one of them")
    return data


class _Nodes:
    def __init__(self) -> None:
        self.repeated: yaml.Node | None = None
        self.weights: dict[int, int] = {}

    def weigh(self, node: yaml.Node) -> int:
        if id(node) not in self.weights:
            self.weights[id(node)] = 1 + sum(map(self.weigh, self._children(node)))
        return self.weights[id(node)]

    def _children(self, node: yaml.Node) -> Iterator[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            yield from node.value
        names = set[str]()
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):  # another one is refused later
                self.repeated = self.repeated or (key if key.value in names else None)
                names.add(key.value)
            yield from (key, value)


def _place(mark: yaml.Mark | None) -> str:
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
