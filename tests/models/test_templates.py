"""The version of the prompts: the same wherever the files are the same, and another when a file is."""

from agent_service.models.prompts.prompt import version_of

TEXTS = {"plan.md": "Plan.", "rules.md": "Rules."}


def test_the_same_texts_have_the_same_version_in_every_process() -> None:
    assert version_of(TEXTS) == version_of(dict(reversed(TEXTS.items()))) == "16fbcd689adcddfd"
