"""What whoever installs can choose. Values only."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ductile_gateway.installation.found import Generation
from groundwork.service.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class Schedule:
    """Runs that begin by themselves. `when`: an interval of Ductile's (`24h`), or five fields of cron."""

    goal: str
    kind: Literal["every", "cron"]
    when: str


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """`agent`, `gateway`: their addresses, for Ductile. `settings`: theirs, made where there are none.

    `writes`: tools that write can be called. `answers`: Ductile may hand in what people say. `outcomes`: the folder in
    which outcomes are kept as files.
    """

    agent: str = "http://127.0.0.1:8700"
    gateway: str = "http://127.0.0.1:8710"
    settings: Path = Path("agentic.yaml")
    generation: Generation | None = None
    writes: bool = False
    answers: bool = False
    webhook: bool = False
    outcomes: Path | None = None
    schedule: Schedule | None = None

    def check(self) -> None:
        """Raises Misconfigured for what cannot be meant."""
        for name, url in (("--agent", self.agent), ("--gateway", self.gateway)):
            try:
                parts = urlsplit(url)
                is_address = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
            except ValueError:
                is_address = False
            if not is_address:
                raise Misconfigured(f"{name} {url!a} is no address such as http://127.0.0.1:8700")
        if self.outcomes and set("{}\n") & set(str(self.outcomes)):
            raise Misconfigured("the folder of outcomes has a brace in its name, which Ductile would read as a place")


def port_of(url: str) -> int:
    """The one that it names, or that of its scheme."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
