"""Long texts cut to a bound, with a marker that says how much is missing and where the whole is."""


def clipped(text: str, length: int, rest: str = "") -> str:
    """At most `length` characters of `text`, and a marker if there are more. `rest`: where these are."""
    return text if len(text) <= length else with_cut_marker(text[:length], len(text), rest)


def with_cut_marker(head: str, length: int, rest: str = "") -> str:
    """The beginning of a text that has `length` characters in all."""
    return f"{head}\n[cut: {len(head)} of {length} characters are shown{rest}]"
