"""What nobody foresaw in an adapter is told and tried again: it costs no run."""

import logging
from dataclasses import replace

import pytest

from agent_service.errors import ModelError
from agent_service.models.opening import ContainedModel
from agent_service.run.ports import Answer, ModelCall, Question
from tests.models.model_house import framing


class Breaking:
    """Raises what it is given."""

    verifies = True

    def __init__(self, error: Exception) -> None:
        self._error = error

    def prepare(self, question: Question) -> ModelCall:
        if question.call == 0:
            raise self._error
        return ModelCall(estimate=None, make=self._make)

    async def _make(self) -> Answer:
        raise self._error

    async def check(self) -> tuple[str, ...]:
        return ("it is old",)


async def test_an_unforeseen_error_is_tried_again_and_its_text_is_for_the_log_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ContainedModel(Breaking(ZeroDivisionError("a secret may stand here")))
    with caplog.at_level(logging.ERROR), pytest.raises(ModelError) as caught:
        await model.prepare(framing()).make()
    assert (caught.value.remedy, caught.value.error_class) == ("try_again", "model_broken")
    assert "ZeroDivisionError" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caplog.records[0].exc_info
    with pytest.raises(ModelError, match="ZeroDivisionError"):
        model.prepare(replace(framing(), call=0))


async def test_an_error_that_says_what_to_do_passes_as_it_is() -> None:
    error = ModelError("pause", "model_spend_limit", "raise it")
    with pytest.raises(ModelError) as caught:
        await ContainedModel(Breaking(error)).prepare(framing()).make()
    assert caught.value is error


async def test_a_check_is_passed_on() -> None:
    assert await ContainedModel(Breaking(ValueError())).check() == ("it is old",)
