"""Check of the model: is there a key, does the provider answer, does it know the model? Nothing is asked that costs."""

import asyncio

from agent_service.errors import ModelError
from agent_service.models.opening import open_model
from agent_service.models.scripted_model import read_script
from agent_service.models.settings import ModelSettings
from agent_service.telling.findings import ok, warning, wrong
from groundwork.service.errors import Misconfigured
from schemas.gateway_status import Finding

MODEL_ANSWERS_WITHIN_S = 15.0


async def model(settings: ModelSettings) -> Finding:
    if settings.provider == "scripted":
        return await asyncio.to_thread(_script, settings)
    names = f"{settings.provider}: {', '.join(settings.names())}"
    try:
        async with open_model(settings) as provider, asyncio.timeout(MODEL_ANSWERS_WITHIN_S):
            findings = await provider.check()
    except Misconfigured as error:
        return wrong("model", str(error), remedy="correct the section agent.model of the configuration")
    except TimeoutError:
        return warning(
            "model", f"{names}: no answer in {MODEL_ANSWERS_WITHIN_S:g} s", remedy="ask again later: runs wait"
        )
    except ModelError as error:
        if error.remedy == "try_again":
            return warning("model", f"{names}: {error}", remedy="ask again later: runs wait until it answers")
        return wrong("model", f"{names}: {error}", remedy="correct the section agent.model of the configuration")
    if findings:
        return warning("model", f"{names}: {'; '.join(findings)}", remedy="choose another in agent.model.model")
    return ok("model", f"{names}, which the provider knows")


def _script(settings: ModelSettings) -> Finding:
    file = settings.script_file()
    try:
        script = read_script(file)
    except Misconfigured as error:
        return wrong("model", str(error), remedy="correct the script, or set agent.model.script to another")
    return ok(
        "model", f"scripted: {script.name}, {len(script.rules)} rules in {file} (it follows them, and does not think)"
    )
