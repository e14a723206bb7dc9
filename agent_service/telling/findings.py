"""The outcome of one check, in the words in which the gateway tells its own. Pure."""

from agent_service.core.unseen import visible
from schemas.gateway_status import Finding


def ok(name: str, text: str) -> Finding:
    return Finding(name=name, mark="ok", text=visible(text))


def warning(name: str, text: str, *, remedy: str) -> Finding:
    return Finding(name=name, mark="warning", text=visible(text), remedy=visible(remedy))


def wrong(name: str, text: str, *, remedy: str) -> Finding:
    return Finding(name=name, mark="wrong", text=visible(text), remedy=visible(remedy))
