"""The pages that are written, from the templates in deploy/ductile/added: Ductile's, and the agent's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ductile_gateway.installation.found import Found, Generation
from ductile_gateway.installation.wishes import Wishes, port_of
from groundwork.service.shipped import shipped

_SCOPES = {
    "m": ["plugin:ro", "jobs:ro", "events:ro"],
    "n": ["plugin:catalog:ro", "plugin:invoke:ro", "jobs:ro", "events:meta:ro"],
}
_WRITING = {"m": ["plugin:rw", "jobs:ro", "events:ro"], "n": ["plugin:rw", *_SCOPES["n"]]}
_NOT_TOOLS = frozenset({"health", "init"})
"""Commands that Ductile itself asks."""
WEBHOOKS = "127.0.0.1:8081"


@dataclass(frozen=True, slots=True)
class DuctilesPage:
    """What of the folder agentic is of Ductile's configuration. `tokens`: the files with those of wake and run."""

    found: Found
    wishes: Wishes
    generation: Generation
    tokens: Mapping[str, Path]

    def installed(self) -> str:
        """agentic.yaml"""
        wishes = self.wishes
        secrets, outcomes = ["secrets.yaml"] * (self.generation == "m"), ["outcomes.yaml"] * bool(wishes.outcomes)
        return _rendered(
            "agentic.yaml",
            generation=self.generation,
            included=["yours.yaml", *secrets, *outcomes],
            writes=wishes.writes,
            answers=wishes.answers,
            scopes=self._scopes(),
            agent_url=wishes.agent,
            token_file=str(self.tokens["run"]),
            ingress=self.found.ingress,
            webhook={"listen": None if self.found.webhooks_listen else WEBHOOKS} if wishes.webhook else None,
        )

    def yours(self) -> str:
        """yours.yaml"""
        return _rendered(
            "yours.yaml",
            generation=self.generation,
            agent_url=self.wishes.agent,
            gateway_url=self.wishes.gateway,
            token_file=str(self.tokens["wake"]),
            schedule=self.wishes.schedule,
        )

    def secrets(self, token: str) -> str:
        """secrets.yaml, with the gateway's token (generation m)."""
        return _rendered("secrets.yaml", writes=self.wishes.writes, token=token, scopes=self._scopes())

    def _scopes(self) -> list[str]:
        return (_WRITING if self.wishes.writes else _SCOPES)[self.generation]


def outcomes_page(folder: Path) -> str:
    """agentic/outcomes.yaml, for files in that folder."""
    return _rendered("outcomes.yaml", outcomes=str(folder.absolute()))


@dataclass(frozen=True, slots=True)
class AgentsPage:
    """agentic.yaml of the agent and its gateway. `beside_another`: what is to be added, where they have a Ductile."""

    found: Found
    wishes: Wishes
    generation: Generation
    secrets: Mapping[str, Path]
    beside_another: bool = False

    def text(self) -> str:
        wishes = self.wishes
        reading, writing = self._commands("read"), self._commands("write")
        return _rendered(
            "beside-another.yaml" if self.beside_another else "for-the-agent.yaml",
            generation=self.generation,
            ductile=str(self.found.folder),
            name=self.found.name,
            url=self.found.url,
            ingress=self.found.ingress,
            agent_port=port_of(wishes.agent),
            gateway_port=port_of(wishes.gateway),
            answers=wishes.answers,
            run_scopes=["read", "control"] if wishes.answers else ["read"],
            writes=wishes.writes,
            tools=reading,
            writing=writing,
            secrets={name: str(place) for name, place in self.secrets.items()},
        )

    def _commands(self, tier: str) -> dict[str, list[str]]:
        """Of each plugin of this Ductile: what of it is of that tier."""
        found = {
            name: [each.name for each in manifest.commands if each.type == tier and each.name not in _NOT_TOOLS]
            for name, manifest in sorted(self.found.manifests().items())
        }
        return {name: commands for name, commands in found.items() if commands}


def _rendered(template: str, **values: Any) -> str:
    import jinja2  # seldom needed, and slow to load

    environment = jinja2.Environment(
        autoescape=False,  # noqa: S701 - a template of YAML, where every value is written as JSON
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)
    text = shipped("deploy", "ductile", "added", f"{template}.jinja").read_text(encoding="utf-8")
    return environment.from_string(text).render(**values)
