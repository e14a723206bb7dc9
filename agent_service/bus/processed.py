"""Messages that the agent was delivered and dealt with, as spans: one per delivery, below the root of the run. Pure."""

from datetime import datetime

from agent_service.identity import root_span_id, trace_id
from groundwork.nats.delivery import Delivery
from groundwork.telemetry import names
from groundwork.telemetry.span import Span, Value, context_of, span_id
from schemas.headers import TRACEPARENT


def processed(delivery: Delivery, run_id: str, *, stream: str, consumer: str, began: datetime, ended: datetime) -> Span:
    sender = context_of(delivery.headers.get(TRACEPARENT))
    attributes: dict[str, Value] = {
        names.RUN_ID: run_id,
        names.MESSAGING_SYSTEM: "nats",
        names.MESSAGING_OPERATION: "process",
        names.MESSAGING_OPERATION_TYPE: "process",
        names.DESTINATION: delivery.subject,
        names.MESSAGE_CONVERSATION_ID: run_id,
        names.CONSUMER_GROUP: consumer,
        names.STREAM: stream,
        names.STREAM_SEQUENCE: delivery.stream_seq,
        names.DELIVERY_COUNT: delivery.delivered,
    }
    return Span(
        trace_id=trace_id(run_id),
        span_id=span_id(f"{stream}:{delivery.stream_seq}:{consumer}:{delivery.delivered}:{delivery.at}"),
        parent_id=root_span_id(run_id),
        name=f"process {delivery.subject}",
        kind="consumer",
        started_at=began,
        ended_at=ended,
        attributes=attributes,
        links=(sender,) if sender else (),
    )
