"""Which Ductile of several has a tool: `home_echo` is the plugin `echo` of the Ductile `home`. Pure.

A Ductile's name has no underscore, and ends at the first one: so no two Ductiles can have tools of one name. The one
that needs no name has the empty one.
"""

from collections.abc import Container


def owner(tool: str, names: Container[str]) -> str:
    """The name of the Ductile that has the tool or route; empty where it begins with none of these names."""
    name, ends, _ = tool.partition("_")
    return name if ends and name in names else ""


def full_name(name: str, *, of: str) -> str:
    return f"{of}_{name}" if of else name


def own_name(name: str, *, of: str) -> str:
    return name.removeprefix(f"{of}_") if of else name
