"""A run whose model costs something: what was set aside, a call that a crash lost, caches, where replies come from."""

from agent_service.core.events import ModelUsage, Provenance
from tests.core.cues import started
from tests.core.model_cues import reserves
from tests.core.script import Script
from tests.projections.journals import (
    CRITIQUE,
    FETCH,
    FETCHING,
    FRAMING,
    GOAL,
    PAGE,
    REPORT,
    SEEN,
    WRITING,
    WRITTEN,
    artifact,
    asked_for,
    brings,
    second_by_second,
    thinks,
)

MADE = Provenance(prompt_hash="aaaa", schema_hash="bbbb", reply_id="msg_1", stop_reason="end_turn")
CACHED = ModelUsage(input_tokens=5000, output_tokens=120, cost_usd=0.01, cache_read_tokens=4200, cache_write_tokens=300)


def priced_example() -> Script:
    """RFC-103's example by a model that costs something: an opening with its plan, a lost call, caches."""
    page, critique = artifact("artifacts/fetch-01.html", PAGE, "text/html"), artifact("artifacts/critique.md", CRITIQUE)
    return second_by_second(
        asked_for(GOAL),
        started((FETCH, REPORT)),
        reserves(9000, 0.1),
        thinks(FRAMING, FETCHING, provenance=MADE),
        brings(artifact_path=page["path"], content_type="text/html", excerpt="Matt Joyce", artifacts=[page]),
        reserves(9000, 0.1),
        reserves(9000, 0.1),
        thinks(SEEN, WRITING, usage=CACHED, provenance=MADE),
        brings(artifacts=[critique], summary="wrote 2 paragraphs"),
        reserves(9000, 0.1),
        thinks(WRITTEN, usage=CACHED, provenance=MADE),
    )
