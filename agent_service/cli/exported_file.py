"""`agentic verify FILE`: is a file of exported runs as its agent wrote it? Asked anywhere, without a store or a bus."""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_service.cli.outcome import Outcome
from agent_service.telling.export.file import ExportFile
from agent_service.telling.export.judging import Judged, judge
from agent_service.telling.export.manifest import Manifest
from agent_service.telling.folder.verify import Flaw
from agent_service.telling.plain import one_line
from groundwork.service.installed import installed_version


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile(Outcome):
    """`key` and `public` are of who signed it, empty where nobody did; `expected`: whether that key was asked for."""

    file: str
    manifest: Manifest
    key: str
    public: str
    expected: bool
    flaws: tuple[Flaw, ...]

    @property
    def ok(self) -> bool:
        return not self.flaws

    def for_programs(self) -> dict[str, Any]:
        runs = [run.model_dump(mode="json") for run in self.manifest.runs]
        told = {"file": self.file, "at": f"{self.manifest.at:%Y-%m-%dT%H:%M:%SZ}", "program": self.manifest.program}
        flaws = [asdict(flaw) for flaw in self.flaws]
        return {"ok": self.ok, **told, "runs": runs, "key": self.key, "public": self.public, "flaws": flaws}

    def __str__(self) -> str:
        if not self.ok:
            return "\n".join(f"✗ {one_line(str(flaw), 500)}" for flaw in self.flaws)
        exported = f"exported {self.manifest.at:%Y-%m-%d %H:%M:%S} UTC by version {self.manifest.program}"
        lines = [f"✓ {self.file} is as it was written; {exported}"]
        artifacts = Counter(name.partition("/artifacts/")[0] for name in self.manifest.files if "/artifacts/" in name)
        lines += [
            f"  {run.run_id}  {run.status}, {run.version} entries, {artifacts[run.run_id]} artifacts"
            for run in self.manifest.runs
        ]
        lines += [
            f"! without {run.run_id}/{path}: {why}" for run in self.manifest.runs for path, why in run.left_out.items()
        ]
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
    with ExportFile.opened(path) as file:
        return told_of(file, judge(file, key=key), key)


def told_of(file: ExportFile, judged: Judged, key: str | None) -> VerifiedFile:
    signer = judged.signature
    return VerifiedFile(
        file=str(file.path),
        manifest=file.manifest,
        key=signer.key if signer else "",
        public=signer.public if signer else "",
        expected=key is not None,
        flaws=judged.flaws,
    )
