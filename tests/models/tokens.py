"""How many tokens the fake of Anthropic's API counts: a quarter of the bytes, so that tests can foresee it."""

import json
from typing import Any

BYTES_PER_TOKEN = 4


def tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def canonical(value: Any) -> str:
    """JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def blocks(content: Any) -> list[dict[str, Any]]:
    """The content of a message or of the system prompt in blocks."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def block_tokens(block: dict[str, Any]) -> int:
    return tokens(block["text"]) if block.get("type") == "text" else tokens(canonical(block))


def request_tokens(body: dict[str, Any]) -> int:
    """The whole prompt of a request: tools, output format, system prompt and messages."""
    output_format = (body.get("output_config") or {}).get("format")
    said = [block for message in body.get("messages", ()) for block in blocks(message["content"])]
    return (
        sum(tokens(canonical(tool)) for tool in body.get("tools") or ())
        + (tokens(canonical(output_format)) if output_format else 0)
        + sum(map(block_tokens, [*blocks(body.get("system")), *said]))
    )
