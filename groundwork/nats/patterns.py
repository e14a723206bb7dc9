"""Subjects and their patterns, as a NATS server matches them. Pure."""


def matches(pattern: str, subject: str) -> bool:
    """Whether the subject is one of the pattern's: `*` stands for one token, `>` for one or more at the end."""
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, found = wanted[:-1], found[: len(wanted) - 1] if len(found) >= len(wanted) else []
    return len(wanted) == len(found) and all(w in ("*", f) for w, f in zip(wanted, found, strict=True))
