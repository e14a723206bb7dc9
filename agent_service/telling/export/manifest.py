"""What a file of exported runs says of itself: which runs there are, and the SHA-256 of all else that is in it. Pure.

The agent's signature is over the manifest, byte for byte, so that it covers the whole file. Whoever has the file and no
public key of its agent can still follow each journal, and not tell whether somebody wrote all of it anew.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_service.core.waiting import Status
from schemas.fields import Instant
from schemas.signing import KeyId, PublicKey

FORMAT = 1
MANIFEST, SIGNATURE, JOURNAL = "manifest.json", "signature.json", "journal.jsonl"
SIGNED_AS = "export"
"""In the place of a subject: no message of the bus has it."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ExportedRun(_Said):
    """A run as it was then. `head` is the hash of its newest entry, in hex.

    `left_out`: artifacts and children of it that are not in the file, and why.
    """

    run_id: str
    wake_id: str
    accepted_at: Instant
    status: Status
    version: Annotated[int, Field(ge=1)]
    head: Hash
    left_out: dict[str, str] = {}


class Manifest(_Said):
    """`runs`: the one that was asked for, then those that it started, and theirs. `files`: SHA-256 by name."""

    format: int = FORMAT
    program: str
    at: Instant
    runs: Annotated[tuple[ExportedRun, ...], Field(min_length=1)]
    files: dict[str, Hash]


class Signature(_Said):
    """Ed25519 by the agent's key `key`, with its public half, over SIGNED_AS, a line feed and the manifest."""

    key: KeyId
    public: PublicKey
    signature: str


class WrittenEntry(_Said):
    """An entry as a line of a journal. Its texts are those of the store, for the hash is over them."""

    seq: int
    at: Instant
    kind: str
    event: str
    effects_digest: str
    previous: Hash
    hash: Hash
