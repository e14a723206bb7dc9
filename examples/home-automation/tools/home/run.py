#!/usr/bin/env python3
"""Controls a house by the REST API of Home Assistant (Ductile plugin protocol v2). Standard library only."""

import json
import urllib.error
import urllib.request
from typing import Any

from agentic_tool import Call, Failure, serve

KINDS = ("light", "switch", "lock")


class House:
    """Raises OSError."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._url = config["url"].rstrip("/")
        self._headers = {"Authorization": f"Bearer {config['token']}", "Content-Type": "application/json"}

    def states(self) -> dict[str, str]:
        told = self._ask("/api/states")
        return {one["entity_id"]: one["state"] for one in told if one["entity_id"].partition(".")[0] in KINDS}

    def serve(self, service: str, entity: str) -> list[str]:
        """Returns the entities that changed."""
        return [one["entity_id"] for one in self._ask(f"/api/services/{service}", {"entity_id": entity})]

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, content, self._headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


def done(house: House, command: str, payload: dict[str, Any]) -> dict[str, Any]:
    if command == "states":
        found = house.states()
        told = "\n".join(f"{entity}: {state}" for entity, state in sorted(found.items())) or "Nothing answers."
        return {"result": told, "output": {"entities": len(found)}}
    entity = payload["entity"]
    kind = "light" if entity == "all" else entity.partition(".")[0]
    service = f"{kind}/unlock" if command == "unlock" else f"{kind}/turn_{payload['state']}"
    changed = house.serve(service, entity)
    if not changed and entity != "all" and entity not in house.states():
        raise Failure(f"there is no {entity}: `states` lists what there is", "not_found")
    told = f"{service.replace('/', ' ')}: {', '.join(changed) or 'it was so already'}"
    return {"result": told, "output": {"changed": changed}}


def answer(call: Call) -> dict[str, Any]:
    try:
        return done(House(call.config), call.command, call.arguments)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise Failure("the token is not taken", "configuration") from None
        raise Failure(f"the house answered {error.code}", "tool_error", retry=error.code >= 500) from None
    except OSError as error:
        raise Failure(f"the house is away: {error}", "transient", retry=True) from None


if __name__ == "__main__":
    serve(states=answer, switch=answer, unlock=answer)
