"""Code patterns that are holes wherever they occur: ours has none, and the twins' are found."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attacks.targets import SIDES, judge

ROOT = Path(__file__).parents[2]
OURS = ("agent_service", "ductile_gateway", "groundwork", "schemas", "deploy/ductile/plugins")
TWIN = ("tests/attacks/twins", "tests/attacks/plugins/rogue")
SECRET = re.compile(r"(^|_)(signature|secret|password|mac|seal)$")
UNPACKS = {"zipfile", "tarfile", "gzip", "bz2", "lzma", "zlib", "shelve", "pickle", "marshal"}
HANDED_IN = {"groundwork/archive/format.py": {"zipfile", "zlib"}}
"""Unpack files that an operator names, within bounds: nothing from the bus or from plugins."""
WEBHOOK = """
def is_signed(body, secret, signature):
    return hmac.new(secret, body, "sha256").hexdigest() == signature
"""
"""A twin's check of a webhook's signature."""
RUNS_TEXT = {"eval", "exec", "unpack_archive", "system"}


@dataclass(frozen=True, slots=True)
class Code:
    protected: bool

    def nodes(self) -> Iterator[ast.AST]:
        for _, nodes in self.files():
            yield from nodes

    def files(self) -> Iterator[tuple[str, list[ast.AST]]]:
        for folder in OURS if self.protected else TWIN:
            for file in sorted((ROOT / folder).rglob("*.py")):
                yield str(file.relative_to(ROOT)), list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        if not self.protected:
            yield "webhook", list(ast.walk(ast.parse(WEBHOOK)))


@pytest.fixture
def target(side: str) -> Code:
    return Code(protected=side == "ours")


def named(node: ast.AST) -> str:
    """Last name in an expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name.lower()
    return ""


def is_secret(node: ast.AST) -> bool:
    """True if its name says so, or it was computed with a key."""
    return bool(SECRET.search(named(node))) or "hmac." in ast.unparse(node)


@pytest.mark.parametrize("side", SIDES)
async def test_a_digest_that_is_compared_until_it_differs(target: Code) -> None:
    """The time of `==` tells the first byte that differs; that of `hmac.compare_digest` does not."""
    comparing = [node for node in target.nodes() if isinstance(node, ast.Compare)]
    equal = [node for node in comparing if isinstance(node.ops[0], ast.Eq | ast.NotEq)]
    secret = [node for node in equal if {*map(is_secret, (node.left, *node.comparators))} != {False}]
    judge(target, {"compared": [ast.unparse(node) for node in secret]})


@pytest.mark.attack(11, 117)
@pytest.mark.parametrize("side", SIDES)
async def test_content_that_is_unpacked_or_revived(target: Code) -> None:
    found = set[str]()
    for file, nodes in target.files():
        imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        imported += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        found |= {name.partition(".")[0] for name in imported} & UNPACKS - HANDED_IN.get(file, set())
    judge(target, {"unpacked": sorted(found)})


@pytest.mark.attack(51)
@pytest.mark.parametrize("side", SIDES)
async def test_text_that_is_run(target: Code) -> None:
    judge(target, {"run": sorted(RUNS_TEXT & {named(node) for node in target.nodes() if isinstance(node, ast.Call)})})
