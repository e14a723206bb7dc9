"""Translates a constraint as people write it, such as `seats * 900 <= cost`, into a term of SMT-LIB.

Python's parser reads it, and nothing is evaluated. What is not in the tables below is refused.
"""

import ast
import re
from decimal import Decimal

from smtlib import DEEPEST, Term, read

LONGEST = 1_000
OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "div", ast.Mod: "mod",
    ast.And: "and", ast.Or: "or", ast.Not: "not", ast.USub: "-",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "=", ast.NotEq: "distinct",
}  # fmt: skip
FUNCTIONS = {"implies": "=>", "distinct": "distinct", "abs": "abs"}
ALLOWED = "names, numbers, + - * / // %, <= < >= > = !=, and or not, implies(a, b), distinct(a, b), abs(a)"
FLIPPED = {">=": "<=", ">": "<"}
SIGNS = str.maketrans({"≤": "<=", "≥": ">=", "≠": "!=", "−": "-", "×": "*"})  # noqa: RUF001 - as people write them


def formula(text: str) -> Term:
    """Returns the term of a constraint, which may also be SMT-LIB. Raises ValueError."""
    if len(text) > LONGEST:
        raise ValueError(f"a constraint has at most {LONGEST} characters")
    try:
        tree = _parsed(text)
        if _depth(tree) > DEEPEST:
            raise ValueError(f"a constraint is nested at most {DEEPEST} deep")
        return _term(tree)
    except (SyntaxError, RecursionError, MemoryError) as error:
        if not text.strip().startswith("("):
            raise ValueError(f"{text.strip()[:80]!r} is not a constraint: it may hold {ALLOWED}") from error
    terms = read(text)
    if len(terms) != 1:
        raise ValueError(f"{text.strip()[:80]!r} is not a constraint: it may hold {ALLOWED}")
    return terms[0]


def same(one: Term, other: Term) -> bool:
    """Returns True for equal terms; `a >= b` equals `b <= a`."""
    return _normalized(one) == _normalized(other)


def _normalized(term: Term) -> Term:
    if isinstance(term, str):
        return term
    if len(term) == 3 and term[0] in FLIPPED:
        return FLIPPED[str(term[0])], _normalized(term[2]), _normalized(term[1])
    return tuple(map(_normalized, term))


def _depth(tree: ast.AST) -> int:
    level, depth = [tree], 0
    while level:
        level, depth = [child for node in level for child in ast.iter_child_nodes(node)], depth + 1
    return depth


def _parsed(text: str) -> ast.expr:
    """Reads `=` as `==`."""
    return ast.parse(re.sub(r"(?<![<>=!])=(?![=>])", "==", text.translate(SIGNS).strip()), mode="eval").body


def _term(node: ast.expr) -> Term:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=bool() | int() | float() as value):
            return _constant(value)
        case ast.BoolOp(op=op, values=values):
            return OPERATORS[type(op)], *map(_term, values)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)], _term(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)], _term(left), _term(right)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in OPERATORS for op in ops):
            return _compared([left, *others], [OPERATORS[type(op)] for op in ops])
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name], *map(_term, given)
    raise ValueError(f"{ast.unparse(node)[:80]!r} cannot stand in a constraint: it may hold {ALLOWED}")


def _compared(sides: list[ast.expr], operators: list[str]) -> Term:
    """Splits chains: `0 <= a <= 5` is two comparisons."""
    terms = [_term(side) for side in sides]
    pairs: list[Term] = [(op, *terms[at : at + 2]) for at, op in enumerate(operators)]
    return pairs[0] if len(pairs) == 1 else ("and", *pairs)


def _constant(value: float) -> Term:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not -1e300 < value < 1e300:
        raise ValueError("a number is too large")
    return f"{Decimal(str(value)):f}"
