"""Cuts long texts, with a marker that says how much is missing and where the full text is."""


def clipped(text: str, length: int, rest: str = "") -> str:
    """At most `length` characters of `text`, and a marker if there are more. `rest`: location of the full text."""
    return text if len(text) <= length else with_cut_marker(text[:length], len(text), rest)


def with_cut_marker(head: str, length: int, rest: str = "") -> str:
    """`head` and the marker of a text of `length` characters."""
    return f"{head}\n[cut: {len(head)} of {length} characters are shown{rest}]"
