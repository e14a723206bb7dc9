"""YAML as plain data, stricter than the library: repeated keys are errors, and no error quotes the content.

Errors give the position alone because the text of a settings file can be a secret.
"""

from collections.abc import Iterator
from typing import Any

import yaml


class NotYaml(Exception):
    """The text is not acceptable; the message says where (line and column from 1) and how to write it."""


def parse(text: str) -> Any:
    """The data of one YAML document, None if it is empty. Raises NotYaml."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        repeated = next(_repeated_keys(node), None)
        data = loader.construct_document(node) if node else None
    except (yaml.YAMLError, ValueError) as error:
        place = _place(getattr(error, "problem_mark", None))
        raise NotYaml(f"not valid YAML{place}: check the indentation, and quote values with * & ! % @ : or #") from None
    except RecursionError:
        raise NotYaml("nested too deep, or an *alias stands within what it names") from None
    if repeated:
        raise NotYaml(f"a key is given twice{_place(repeated.start_mark)}: keep one of them")
    return data


def _repeated_keys(node: yaml.Node | None) -> Iterator[yaml.Node]:
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        names = [str(key.value) for key, _ in node.value]
        yield from (key for index, (key, _) in enumerate(node.value) if names[index] in names[:index])
        children = [value for _, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    for child in children:
        yield from _repeated_keys(child)


def _place(mark: yaml.Mark | None) -> str:
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
