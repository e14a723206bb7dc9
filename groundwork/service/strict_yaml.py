"""YAML as plain data, stricter than the library: repeated keys are errors, and no error quotes the content.

Errors give the position alone because the text of a settings file can be a secret. An alias stands for what it names
wherever it is read: what all of them come to has a bound.
"""

from collections.abc import Iterator
from typing import Any

import yaml

MOST_VALUES = 200_000
"""That aliases may add to a document, each counted with all that it names."""


class NotYaml(Exception):
    """The text is not acceptable; the message says where (line and column from 1) and how to write it."""


def parse(text: str) -> Any:
    """The data of one YAML document, None if it is empty. Raises NotYaml."""
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
        """The first key that its mapping has already."""
        self.weights: dict[int, int] = {}
        """By identity."""

    def weigh(self, node: yaml.Node) -> int:
        """How many values it comes to. Raises RecursionError where it holds itself."""
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
