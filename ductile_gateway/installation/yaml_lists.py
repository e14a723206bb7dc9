"""Items put into lists of a YAML text, and taken out again, without touching anything else in it. Pure.

The text stays as its author wrote it: comments, order, quotes, indentation, line ends. That is why it is edited at the
places that the parser names, and not written anew. An item is put before all others; taking it out leaves the text as
it was before, to the byte.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from groundwork.service.errors import Misconfigured
from groundwork.service.strict_yaml import NotYaml, parse

Item = str | Mapping[str, str]
"""Text, or a mapping of texts."""
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
_MADE = "# Made for agents: `agentic ductile remove` takes it out again."
_NULL = "tag:yaml.org,2002:null"


def with_item(text: str, key: str, item: Item) -> str:
    """The text with the item first in the top-level list `key`, which is made where there is none.

    Raises Misconfigured where `key` is something else, or the text cannot be read.
    """
    found = mapping_of(text)
    edited = _with_item(text, key, item)
    expected = found | {key: [item, *(found.get(key) or [])]}
    if edited is None or not _says(edited, expected):  # an anchor, say, a list that is none, or the line `...`
        raise Misconfigured(f"`{key}` is not written as a list that can be added to: put {_flow(item)} in it yourself")
    return edited


def without_item(text: str, key: str, item: Item) -> str:
    """The text before `with_item`; as it is where the list has no such item. Raises Misconfigured."""
    value, found = _value_of(text, key), mapping_of(text)
    if not isinstance(value, yaml.SequenceNode) or item not in (items := found[key]):
        return text
    if items == [item] and (added := _list_of_its_own(key, item, _line_end(text))) in text:
        return text.replace(added, "", 1)
    return (_without_flow if value.flow_style else _without_block)(text, value, items.index(item))


def _says(text: str, expected: Mapping[str, Any]) -> bool:
    try:
        return mapping_of(text) == expected
    except Misconfigured:
        return False


def mapping_of(text: str) -> dict[str, Any]:
    """The settings in the text. Raises Misconfigured."""
    try:
        found = parse(text)
    except NotYaml as error:
        raise Misconfigured(str(error)) from None
    if not isinstance(found, dict | None):
        raise Misconfigured("it has no settings as `key: value` lines")
    return found or {}


def _with_item(text: str, key: str, item: Item) -> str | None:
    value, end = _value_of(text, key), _line_end(text)
    if value is None:
        return text + _list_of_its_own(key, item, end)
    at = value.start_mark.index
    if isinstance(value, yaml.SequenceNode) and value.flow_style:
        first = value.value[0].start_mark.index if value.value else at + 1
        return f"{text[:first]}{_flow(item)}{', ' if value.value else ''}{text[first:]}"
    if isinstance(value, yaml.SequenceNode):
        line = text.rfind("\n", 0, at) + 1
        return text[:line] + _block(item, text[line:at], end) + text[line:]
    if value.tag == _NULL and not value.value:
        return text[:at] + end + _block(item, "  ", end).removesuffix(end) + text[at:]
    return None


def _without_flow(text: str, value: yaml.SequenceNode, place: int) -> str:
    nodes = value.value
    at, after = nodes[place].start_mark.index, nodes[place].end_mark.index
    if place + 1 < len(nodes):
        after = nodes[place + 1].start_mark.index
    elif place:
        at = nodes[place - 1].end_mark.index
    return text[:at] + text[after:]


def _without_block(text: str, value: yaml.SequenceNode, place: int) -> str:
    node, end = value.value[place], _line_end(text)
    dash = text.rfind("-", 0, node.start_mark.index + 1)
    line = text.rfind("\n", 0, dash) + 1
    last = node.value[-1][1] if isinstance(node, yaml.MappingNode) and node.value else node
    after = last.end_mark.index
    if len(value.value) == 1:  # the list had nothing in it
        return text[: line - len(end)] + text[after:]
    following = text.find("\n", after)
    return text[:line] + ("" if following < 0 else text[following + 1 :])


def _value_of(text: str, key: str) -> Any:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def _list_of_its_own(key: str, item: Item, end: str) -> str:
    return f"{end}{_MADE}{end}{key}:{end}{_block(item, '  ', end)}"


def _block(item: Item, indent: str, end: str) -> str:
    pairs = [item] if isinstance(item, str) else [f"{name}: {_scalar(value)}" for name, value in item.items()]
    return f"{indent}- " + f"{end}{indent}  ".join(pairs) + end


def _flow(item: Item) -> str:
    if isinstance(item, str):
        return item
    return "{" + ", ".join(f"{name}: {_scalar(value)}" for name, value in item.items()) + "}"


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
