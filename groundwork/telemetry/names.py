"""Names of attributes and metrics: those of the OpenTelemetry conventions, and ours (`agentic.…`).

Those of the GenAI conventions are of semantic-conventions 1.41, and of its successor semantic-conventions-genai 0.1
where `OTEL_SEMCONV_STABILITY_OPT_IN` lists `gen_ai_latest_experimental`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

ATTEMPT = "agentic.attempt"
CACHE_MISS = "agentic.cache_miss"
CALL = "agentic.call"
CALLS = "agentic.calls"
COST_USD = "agentic.cost_usd"
GOAL = "agentic.goal"
PHASE = "agentic.phase"
PLAN_RULING = "agentic.plan_ruling"
REASON = "agentic.reason"
REPAIRS = "agentic.repairs"
ROUND = "agentic.round"
RULING = "agentic.ruling"
RUN_ID = "agentic.run_id"
STATE = "agentic.state"
STEP = "agentic.step"
STEPS = "agentic.steps"
TASK = "agentic.task"
TOOL_COMMAND = "agentic.tool_command"
TRIES = "agentic.tries"
WAITING_FOR = "agentic.waiting_for"
WAKE_ID = "agentic.wake_id"
WHY = "agentic.class"

ERROR_TYPE = "error.type"

EXIT_CODE = "process.exit.code"
HTTP_METHOD = "http.request.method"
HTTP_STATUS = "http.response.status_code"
JOB_ATTEMPTS = "agentic.job_attempts"
JOB_ID = "agentic.job_id"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
URL_TEMPLATE = "url.template"

AGENT_NAME = "gen_ai.agent.name"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CONVERSATION_ID = "gen_ai.conversation.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_MESSAGES = "gen_ai.input.messages"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OPERATION = "gen_ai.operation.name"
OUTPUT_MESSAGES = "gen_ai.output.messages"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_NAME = "gen_ai.tool.name"
TOOL_RESULT = "gen_ai.tool.call.result"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenAi:
    """What the two have different names for. Metrics of tokens are one for both types, or one for each."""

    cache_write_tokens: str
    duration: str
    input_tokens: str
    output_tokens: str


RELEASED = GenAi(
    cache_write_tokens="gen_ai.usage.cache_creation.input_tokens",
    duration="gen_ai.client.operation.duration",
    input_tokens="gen_ai.client.token.usage",
    output_tokens="gen_ai.client.token.usage",
)
LATEST = GenAi(
    cache_write_tokens="gen_ai.usage.cache_write.input_tokens",
    duration="gen_ai.client.inference.duration",
    input_tokens="gen_ai.client.inference.operation.input_tokens",
    output_tokens="gen_ai.client.inference.operation.output_tokens",
)


def gen_ai(environ: Mapping[str, str] = os.environ) -> GenAi:
    chosen = environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")
    return LATEST if "gen_ai_latest_experimental" in map(str.strip, chosen) else RELEASED
