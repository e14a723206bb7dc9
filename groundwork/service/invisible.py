"""Makes invisible characters visible: they hide words, join or turn letters, or control a terminal.

The set is fixed here, so that rendered files are the same under every version of Python's Unicode tables.
"""

import re

HIDDEN = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters that hide, join or turn letters, line separators, and halves of surrogate pairs, for a regex set."""
_UNSEEN = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{HIDDEN}]")
_HIDDEN_ALONE = re.compile(rf"[{HIDDEN}]")


def visible(text: str) -> str:
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _UNSEEN.sub(_sign, text.replace("\r\n", "\n"))


def json_visible(json_text: str) -> str:
    r"""Uses JSON's own `\u` escapes, so the value stays the same."""
    if json_text.isascii() and json_text.isprintable():
        return json_text
    return _UNSEEN.sub(_escape, json_text)


def with_signs(text: str) -> str:
    """Replaces hidden characters by signs; control characters stay."""
    return text if text.isascii() else _HIDDEN_ALONE.sub(_sign, text)


def without_hidden(text: str) -> str:
    return text if text.isascii() else _HIDDEN_ALONE.sub("", text)


def _sign(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
