"""`agentic verify --all` (every run, on request also their endings on the bus) and `agentic verify FILE`. Read-only."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_service.archive.runs import ArchivedRun, Runs
from agent_service.archive.verify import judge
from agent_service.bus.endings import ToldEnd, told_ends
from agent_service.cli.archive.records import Outcome, Records, bus_at_hand, bus_when_needed, records
from agent_service.cli.archive.run_folder import Verified, verified
from agent_service.cli.whereabouts import told
from agent_service.history.plain import one_line
from agent_service.store.opening import left_out
from agent_service.views.folder.verify import Flaw
from groundwork.archive.format import Archive, Manifest
from groundwork.service.errors import Misconfigured
from groundwork.service.installed import installed_version

STORE, BUS = "store", "bus"
AT_ONCE = 500
SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreVerified(Outcome):
    """`runs`: how many. `flawed`: runs by id. `flaws`: of the whole store. `ends`: endings compared with the bus."""

    config: str
    runs: int
    ends: int
    flaws: tuple[Flaw, ...]
    flawed: tuple[Verified, ...]

    @property
    def ok(self) -> bool:
        return not self.flaws and not self.flawed

    def __str__(self) -> str:
        if self.ok:
            by = f", and end as the {self.ends} endings on the bus say" if self.ends else ""
            return f"✓ {self.runs} runs are as they were written{by}"
        lines = [f"✗ {flaw}" for flaw in self.flaws]
        return "\n".join(lines + [f"{line}  ({run.run_id})" for run in self.flawed for line in str(run).splitlines()])


async def verify_all(config: Path | None, *, against_bus: bool) -> StoreVerified:
    """Raises Misconfigured without a readable store, or without keys for the bus; Failure where that is away."""
    async with AsyncExitStack() as opened:
        kept = await opened.enter_async_context(records(config))
        ends = await _ends(kept) if against_bus else []
        found = await left_out(kept.database) if kept.shared else {}
        flaws = [Flaw(kind="changed", place=STORE, text=f"{about}: {text}") for about, text in found.items()]
        flaws += [flaw for end in ends if (flaw := await _of_end(kept, end))]
        artifacts = await opened.enter_async_context(bus_when_needed(kept.settings))
        verdicts = [await verified(kept, run_id, artifacts) async for run_id in _every_run(kept)]
    return StoreVerified(
        config=told(kept.config),
        runs=len(verdicts),
        ends=len(ends),
        flaws=tuple(flaws),
        flawed=tuple(verdict for verdict in verdicts if not verdict.ok),
    )


async def _ends(kept: Records) -> list[ToldEnd]:
    if kept.ring is None:
        raise Misconfigured(f"there is no file {kept.settings.keys_path()}, by which endings are proved")
    async with bus_at_hand(kept.settings) as link:
        return await told_ends(link, kept.ring)


async def _every_run(kept: Records) -> AsyncIterator[str]:
    before: str | None = None
    while lines := await kept.store.runs(limit=AT_ONCE, before=before):
        for line in lines:
            yield line.run_id
        before = lines[-1].run_id


async def _of_end(kept: Records, end: ToldEnd) -> Flaw | None:
    if await kept.store.tombstone(end.run_id):
        return None
    entries = await kept.store.entries(end.run_id, after=end.seq - 1, limit=1)
    if entries and entries[0].hash == end.head:
        return None
    what = "another entry is there now" if entries else "it is not there any more"
    text = f"{end.subject} of {end.run_id} was told with entry {end.seq}: {what}"
    return Flaw(kind="changed" if entries else "missing", place=BUS, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile(Outcome):
    """`key` and `public` of the signer, empty where there is none; `expected`: whether that key was asked for."""

    file: str
    manifest: Manifest
    runs: tuple[ArchivedRun, ...]
    key: str
    public: str
    expected: bool
    flaws: tuple[Flaw, ...]

    @property
    def ok(self) -> bool:
        return not self.flaws

    def for_programs(self) -> dict[str, Any]:
        runs = [run.model_dump(mode="json", exclude={"positions"}) for run in self.runs]
        told = {"file": self.file, "at": f"{self.manifest.at:%Y-%m-%dT%H:%M:%SZ}", "program": self.manifest.program}
        flaws = [asdict(flaw) for flaw in self.flaws]
        return {"ok": self.ok, **told, "runs": runs, "key": self.key, "public": self.public, "flaws": flaws}

    def __str__(self) -> str:
        if not self.ok:
            return "\n".join(f"✗ {one_line(str(flaw), 500)}" for flaw in self.flaws)
        made = f"made {self.manifest.at:%Y-%m-%d %H:%M:%S} UTC by version {self.manifest.program}"
        lines = [f"✓ {self.file} is as it was written; {made}"]
        artifacts = Counter(name.partition("/artifacts/")[0] for name in self.manifest.files if "/artifacts/" in name)
        lines += [
            f"  {run.run_id}  {run.status}, {run.version} entries, {artifacts[run.run_id]} artifacts"
            for run in self.runs[:SHOWN]
        ]
        lines += [f"  and {len(self.runs) - SHOWN} more runs"] if len(self.runs) > SHOWN else []
        lines += [f"! without {name}: {why}" for name, why in self.manifest.left_out.items()]
        lines += [f"! without {run.run_id}/{path}: {why}" for run in self.runs for path, why in run.left_out.items()]
        if self.manifest.program != installed_version():
            lines.append("! its pages were not held against the journals: another version has written them")
        return "\n".join((*lines, self._signer()))

    def _signer(self) -> str:
        if not self.key:
            return "! nobody has signed it: whoever had it may have written all of it anew"
        if self.expected:
            return f"signed with the key {self.key}, as you asked"
        return (
            f"signed with the key {self.key}, public {self.public}: compare that with what `agentic keys list` says "
            "where it was made; or give it as --key"
        )


def verify(path: Path, key: str | None = None) -> VerifiedFile:
    """`key`: the public half of the key that must have signed it. Raises Misconfigured for what is no such file."""
    with Archive.opened(path) as archive:
        flaws, signer = judge(archive, key=key), archive.signature
        return VerifiedFile(
            file=str(path),
            manifest=archive.manifest,
            runs=() if flaws else Runs(archive).all,
            key=signer.key if signer else "",
            public=signer.public if signer else "",
            expected=key is not None,
            flaws=tuple(flaws),
        )
