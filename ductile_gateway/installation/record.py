"""What was put where: kept beside it, so that it can be taken out again, and nothing else with it."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ductile_gateway.installation.found import OURS, Found
from ductile_gateway.installation.plan import Added, Plan
from groundwork.service.errors import Misconfigured

NAME = "installed.json"


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class KeptFile(_Entry):
    """`sha256`: of what was written, in hex. `text`: what was, of settings."""

    path: Path
    sha256: str
    text: str | None = None
    at_agent: bool = False


class KeptItem(_Entry):
    path: Path
    key: str
    item: str | dict[str, str]

    def added(self) -> Added:
        return Added(self.path, self.key, self.item)


class Record(_Entry):
    """`made`: files of Ductile's that were not there before. `agents_folder`: where the agent's settings are."""

    generation: str
    agents_folder: Path
    files: tuple[KeptFile, ...]
    items: tuple[KeptItem, ...]
    made: tuple[Path, ...] = ()

    def digest_of(self, path: Path) -> str | None:
        return next((file.sha256 for file in self.files if file.path == path), None)

    def text_of(self, path: Path) -> str:
        return next((file.text or "" for file in self.files if file.path == path), "")

    def as_text(self) -> str:
        return self.model_dump_json(indent=1) + "\n"


def place(found: Found) -> Path:
    return found.folder / OURS / NAME


def of(plan: Plan, *, made: Iterable[Path], before: Record | None) -> Record:
    """The record of a plan that is carried out, after what was added `before`."""
    files = [
        KeptFile(
            path=file.path,
            sha256=file.digest,
            at_agent=file.at_agent,
            text=file.content.decode() if file.whole else None,
        )
        for file in plan.files
    ]
    items = [KeptItem(path=each.path, key=each.key, item=each.item) for each in plan.added]
    known = before or Record(generation=plan.generation, agents_folder=plan.agents_folder, files=(), items=())
    paths = {file.path for file in files}
    return Record(
        generation=plan.generation,
        agents_folder=plan.agents_folder,
        files=(*files, *(file for file in known.files if file.path not in paths)),
        items=(*(item for item in items if item not in known.items), *known.items),
        made=tuple(dict.fromkeys((*known.made, *made))),
    )


def read(found: Found) -> Record | None:
    """None where nothing was installed. Raises Misconfigured."""
    try:
        return Record.model_validate_json(place(found).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        told = f"{place(found)} cannot be read: it tells what was installed. Restore it, or take out by hand what"
        raise Misconfigured(f"{told} docs/DUCTILE.md names") from None
