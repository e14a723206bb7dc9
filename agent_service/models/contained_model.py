"""A model whose bugs, and whose SDK's, cost no run: what nobody foresaw is an error like any other, to be tried again.

Without it a run would stand still until the next restart, and nobody would know why.
"""

import logging

from agent_service.errors import ModelError
from agent_service.ports import Answer, Estimate, Provider, Question

log = logging.getLogger(__name__)


class ContainedModel:
    """Passes everything on. Fills the port Provider."""

    def __init__(self, model: Provider) -> None:
        self._model = model

    def estimate(self, question: Question) -> Estimate | None:
        try:
            return self._model.estimate(question)
        except Exception as error:
            raise _told(error, question) from error

    async def decide(self, question: Question) -> Answer:
        try:
            return await self._model.decide(question)
        except ModelError:
            raise
        except Exception as error:
            raise _told(error, question) from error

    async def check(self) -> tuple[str, ...]:
        return await self._model.check()


def _told(error: Exception, question: Question) -> ModelError:
    log.error("a model call broke", exc_info=error, extra={"run_id": question.state.run_id, "call": question.call})
    return ModelError("try_again", "model_broken", f"{type(error).__name__} in the adapter: the agent's log has more")
