"""JetStream as the program uses it: streams with dedupe, compare-and-swap and limits; pull and push consumers.

Its faults (see `random_world.FAULTS`) are those of a real one. It uses the world's clock.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tests.sim.machines.time import Scheduler
from tests.sim.servers.streams import (
    HEAD,
    NS,
    REDELIVERED_AGAIN_S,
    Consumer,
    Pull,
    StoredMessage,
    Stream,
    head_of,
    headers_of,
    matches,
)

FULL, WRONG_LAST, NO_STREAM, NO_CONSUMER, NO_MESSAGE = 10077, 10071, 10059, 10014, 10037

Json = dict[str, Any]


class HandOut(Protocol):
    def __call__(self, to: str, body: bytes, reply: str = "", head: bytes = b"", *, subject: str = "") -> bool: ...


class Refusal(Exception):
    def __init__(self, code: int, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.error = {"code": status, "err_code": code, "description": description}


class JetStream:
    def __init__(self, scheduler: Scheduler, hand_out: HandOut, is_heard: Callable[[str], bool]) -> None:
        self.streams: dict[str, Stream] = {}
        self.full: str = ""
        """Name of a stream that refuses messages."""
        self.on_stored: Callable[[StoredMessage], None] = lambda _: None
        self.redelivered = self.passed_over = 0
        """Messages delivered more than once, and messages delivered after later ones."""
        self._scheduler = scheduler
        self._hand_out = hand_out
        self._is_heard = is_heard

    def takes(self, subject: str, body: bytes, reply: str) -> bool:
        """Returns True for a message to JetStream itself."""
        if subject.startswith("$JS.API."):
            self._asked(subject.removeprefix("$JS.API.").split("."), body, reply)
            return True
        if subject.startswith("$JS.ACK."):
            self._settled(subject.split("."), body)
            return True
        return subject.startswith("$JS.FC.")

    def store(self, subject: str, body: bytes, reply: str, head: bytes) -> bool:
        """Returns True and answers if a stream takes the subject."""
        stream = next((stream for stream in self.streams.values() if stream.takes(subject)), None)
        if stream is None:
            return False
        chance = self._scheduler.chance
        if chance("message not stored"):
            return True
        try:
            answer: Json = self._store(stream, subject, body, head)
        except Refusal as refusal:
            answer = {"error": refusal.error, "stream": stream.name, "seq": 0}
        if reply and not chance("acknowledgement lost"):
            self._hand_out(reply, json.dumps(answer).encode())
        return True

    def put(self, subject: str, body: bytes, head: bytes) -> None:
        """Stores a message whose publisher repeats it until it is stored."""
        stream = next(stream for stream in self.streams.values() if stream.takes(subject))
        try:
            self._store(stream, subject, body, head)
        except Refusal:
            self._scheduler.after(1.0, lambda: self.put(subject, body, head))

    def configurations(self) -> dict[str, tuple[Json, dict[str, Json]]]:
        """Configurations of the streams, and of their consumers by name."""
        return {
            stream.name: (stream.config, {one.name: one.config for one in stream.consumers.values()})
            for stream in self.streams.values()
        }

    def make(self, configurations: Mapping[str, tuple[Json, Mapping[str, Json]]]) -> None:
        for name, (config, consumers) in configurations.items():
            self.streams[name] = Stream(name, config, self._instant())
            for each in consumers.values():
                self._make_consumer({"stream_name": name, "config": each})

    def forget_pulls(self) -> None:
        for stream in self.streams.values():
            for consumer in stream.consumers.values():
                consumer.pulls.clear()

    # storing

    def _store(self, stream: Stream, subject: str, body: bytes, head: bytes) -> Json:
        headers = headers_of(head) if head else {}
        msg_id = headers.get("Nats-Msg-Id", "")
        if msg_id in stream.ids:
            return {"stream": stream.name, "seq": stream.ids[msg_id], "duplicate": True}
        if stream.name == self.full:
            raise Refusal(FULL, "maximum bytes exceeded", 503)
        self._check_expected(stream, subject, headers)
        stream.last += 1
        kept = StoredMessage(stream.last, subject, body, head, self._scheduler.now, self._scheduler.wall())
        if headers.get("Nats-Rollup") == "sub":
            stream.purge(subject)
        stream.kept[kept.seq] = kept
        stream.first = min(stream.first, kept.seq) if len(stream.kept) > 1 else kept.seq
        if msg_id:
            stream.ids[msg_id] = kept.seq
        if stream.config.get("max_msgs_per_subject") == 1 and subject in stream.newest:
            stream.remove(stream.newest[subject])
        stream.newest[subject] = kept.seq
        self.on_stored(kept)
        self._republish(stream, kept, headers)
        for consumer in stream.consumers.values():
            self._deliver_soon(consumer)
        return {"stream": stream.name, "seq": kept.seq}

    def _check_expected(self, stream: Stream, subject: str, headers: dict[str, str]) -> None:
        expected = headers.get("Nats-Expected-Last-Subject-Sequence")
        if expected is not None:
            newest = stream.newest_of(headers.get("Nats-Expected-Last-Subject-Sequence-Subject", subject))
            if int(expected) != (newest.seq if newest else 0):
                raise Refusal(WRONG_LAST, f"wrong last sequence: {newest.seq if newest else 0}")

    def _republish(self, stream: Stream, kept: StoredMessage, headers: dict[str, str]) -> None:
        rule = stream.config.get("republish") or {}
        source, destination = rule.get("src"), rule.get("dest", "")
        if source and matches(source, kept.subject):
            place = {"Nats-Stream": stream.name, "Nats-Subject": kept.subject, "Nats-Sequence": str(kept.seq)}
            to = destination.removesuffix(">") + kept.subject if destination.endswith(">") else destination
            self._hand_out(to, kept.body, "", head_of({**headers, **place}))

    # delivering

    def _deliver_soon(self, consumer: Consumer) -> None:
        self._scheduler.after(0.0, lambda: self._deliver(consumer))

    def _deliver(self, consumer: Consumer) -> None:
        while self._has_taker(consumer) and (seq := consumer.next(self._scheduler.now)) is not None:
            chance = self._scheduler.chance
            if chance("message out of order") and consumer.acknowledges and seq not in consumer.pending:
                self.passed_over += 1
                consumer.later.append(seq)
                self._scheduler.after(0.05, lambda: self._deliver(consumer))
                continue
            self._hand(consumer, seq)
            if consumer.acknowledges and chance("message doubled"):
                consumer.pending[seq] = self._scheduler.now
                self._scheduler.after(REDELIVERED_AGAIN_S, lambda: self._deliver(consumer))
                return

    def _has_taker(self, consumer: Consumer) -> bool:
        if subject := consumer.config.get("deliver_subject"):
            return self._is_heard(subject)
        now = self._scheduler.now
        consumer.pulls = [pull for pull in consumer.pulls if pull.left and pull.until > now]
        while consumer.pulls and not self._is_heard(consumer.pulls[0].reply):
            consumer.pulls.pop(0)
        return bool(consumer.pulls)

    def _hand(self, consumer: Consumer, seq: int) -> None:
        kept = consumer.stream.kept[seq]
        consumer.delivered += 1
        consumer.times[seq] = times = consumer.times.get(seq, 0) + 1
        self.redelivered += times > 1
        if consumer.acknowledges:
            due = self._scheduler.now + consumer.ack_wait
            consumer.pending[seq] = due
            self._scheduler.at(due + 0.001, lambda: self._deliver(consumer))
        to = consumer.config.get("deliver_subject") or self._next_reply(consumer)
        at = int(kept.time.timestamp() * NS)
        where = f"{consumer.stream.name}.{consumer.name}.{times}.{seq}.{consumer.delivered}.{at}.0"
        body = b"" if consumer.config.get("headers_only") else kept.body
        self._hand_out(to, body, f"$JS.ACK.{where}", kept.head, subject=kept.subject)

    def _next_reply(self, consumer: Consumer) -> str:
        pull = consumer.pulls[0]
        pull.left -= 1
        return pull.reply

    def _settled(self, tokens: list[str], body: bytes) -> None:
        _, _, stream_name, name, _, seq_, *_ = tokens
        stream = self.streams.get(stream_name)
        consumer = stream.consumers.get(name) if stream else None
        seq = int(seq_)
        if stream is None or consumer is None or seq not in consumer.pending:
            return
        if body.startswith(b"+WPI"):
            consumer.pending[seq] = self._scheduler.now + consumer.ack_wait
            self._scheduler.after(consumer.ack_wait + 0.001, lambda: self._deliver(consumer))
        elif body.startswith(b"-NAK"):
            delay = json.loads(body[4:] or b"{}").get("delay", 0) / NS
            consumer.pending[seq] = self._scheduler.now + delay
            self._scheduler.after(delay + 0.001, lambda: self._deliver(consumer))
        elif not self._scheduler.chance("settling unheard"):
            del consumer.pending[seq]
            if stream.config.get("retention") == "workqueue":
                stream.remove(seq)
            self._deliver_soon(consumer)

    # the API

    def _asked(self, words: list[str], body: bytes, reply: str) -> None:
        asked: Json = json.loads(body) if body.strip().startswith(b"{") else {}
        try:
            answer = self._answer(words, asked, reply)
        except Refusal as refusal:
            answer = {"error": refusal.error}
        if answer is not None:
            self._hand_out(reply, json.dumps({"type": "io.nats.jetstream.api.v1", **answer}).encode())

    def _answer(self, words: list[str], asked: Json, reply: str) -> Json | None:
        match words:
            case ["DIRECT", "GET", name]:
                self._direct(self._stream(name), asked, reply)
                return None
            case ["CONSUMER", *rest]:
                return self._of_consumer(rest, asked, reply)
            case ["STREAM", *rest]:
                return self._of_stream(rest, asked)
        raise Refusal(10025, f"not known here: {'.'.join(words)}")

    def _of_stream(self, words: list[str], asked: Json) -> Json:
        match words:
            case ["CREATE", name]:
                self.streams.setdefault(name, Stream(name, {"num_replicas": 1, **asked}, self._instant()))
                return self._stream_info(name)
            case ["INFO", name]:
                return self._stream_info(name)
            case ["MSG", "GET", name]:
                return self._message(self._stream(name), asked)
        raise Refusal(10025, f"not known here: {'.'.join(words)}")

    def _of_consumer(self, words: list[str], asked: Json, reply: str) -> Json | None:
        match words:
            case ["CREATE" | "DURABLE", *_]:
                return self._make_consumer(asked)
            case ["INFO", stream, name]:
                return self._consumer(stream, name).info()
            case ["DELETE", stream, name]:
                return {"success": bool(self._stream(stream).consumers.pop(name, None))}
            case ["MSG", "NEXT", stream, name]:
                self._pull(self._consumer(stream, name), asked, reply)
                return None
        raise Refusal(10025, f"not known here: {'.'.join(words)}")

    def _make_consumer(self, asked: Json) -> Json:
        stream, config = self._stream(asked["stream_name"]), asked["config"]
        name = config.get("name") or config.get("durable_name") or f"c{len(stream.consumers)}-{stream.last}"
        known = stream.consumers.get(name)
        if known is None:
            known = stream.consumers[name] = Consumer(stream, name, config, self._instant())
            policy = config.get("deliver_policy", "all")
            known.cursor = {"new": stream.last, "by_start_sequence": config.get("opt_start_seq", 1) - 1}.get(policy, 0)
            if policy == "last_per_subject":
                wanted = {seq for subject, seq in stream.newest.items() if known.wants(subject)}
                known.later, known.cursor = sorted(wanted & stream.kept.keys()), stream.last
            if every := config.get("idle_heartbeat"):
                self._beat(known, every / NS)
            self._deliver_soon(known)
        return known.info()

    def _beat(self, consumer: Consumer, every_s: float) -> None:
        """Sends heartbeats to a push consumer while it exists and has a subscriber."""
        subject = consumer.config.get("deliver_subject", "")

        def beat() -> None:
            if consumer.stream.consumers.get(consumer.name) is not consumer:
                return
            if not self._is_heard(subject):
                del consumer.stream.consumers[consumer.name]
                return
            told = {"Nats-Last-Consumer": str(consumer.delivered), "Nats-Last-Stream": str(consumer.cursor)}
            self._hand_out(subject, b"", "", b"NATS/1.0 100 Idle Heartbeat\r\n" + head_of(told)[len(HEAD) :])
            self._scheduler.after(every_s, beat)

        self._scheduler.after(every_s, beat)

    def _pull(self, consumer: Consumer, asked: Json, reply: str) -> None:
        expires = asked.get("expires", 0) / NS
        pull = Pull(reply, asked.get("batch", 1), self._scheduler.now + expires)
        consumer.pulls.append(pull)
        self._deliver(consumer)
        self._scheduler.at(pull.until, lambda: self._over(consumer, pull))

    def _over(self, consumer: Consumer, pull: Pull) -> None:
        if pull in consumer.pulls and pull.left:
            consumer.pulls.remove(pull)
            told = head_of({"Nats-Pending-Messages": str(pull.left), "Nats-Pending-Bytes": "0"})
            self._hand_out(pull.reply, b"", "", b"NATS/1.0 408 Request Timeout\r\n" + told[len(HEAD) :])

    def _message(self, stream: Stream, asked: Json) -> Json:
        by = asked.get("last_by_subj")
        kept = stream.newest_of(by) if by else stream.kept.get(asked.get("seq", 0))
        if kept is None:
            raise Refusal(NO_MESSAGE, "no message found", 404)
        told: Json = {"subject": kept.subject, "seq": kept.seq, "data": base64.b64encode(kept.body).decode()}
        if kept.head:
            told["hdrs"] = base64.b64encode(kept.head).decode()
        return {"message": {**told, "time": kept.time.isoformat().replace("+00:00", "Z")}}

    def _direct(self, stream: Stream, asked: Json, reply: str) -> None:
        later = [one for seq, one in sorted(stream.kept.items()) if seq >= asked["seq"]]
        found = [one for one in later if matches(asked["next_by_subj"], one.subject)]
        for one in found[: asked["batch"]]:
            place = {
                "Nats-Stream": stream.name,
                "Nats-Subject": one.subject,
                "Nats-Sequence": str(one.seq),
                "Nats-Time-Stamp": one.time.isoformat().replace("+00:00", "Z"),
            }
            self._hand_out(reply, one.body, "", head_of({**headers_of(one.head), **place}))
        if not found:
            self._hand_out(reply, b"", "", b"NATS/1.0 404 Message Not Found\r\n\r\n")
        else:
            pending = head_of({"Nats-Num-Pending": str(max(0, len(found) - asked["batch"]))})
            self._hand_out(reply, b"", "", b"NATS/1.0 204 EOB\r\n" + pending[len(HEAD) :])

    def _stream_info(self, name: str) -> Json:
        stream = self._stream(name)
        told = {"config": stream.config, "created": stream.created, "state": stream.state()}
        return {**told, "ts": self._instant()}

    def _stream(self, name: str) -> Stream:
        if name not in self.streams:
            raise Refusal(NO_STREAM, "stream not found", 404)
        return self.streams[name]

    def _consumer(self, stream: str, name: str) -> Consumer:
        consumer = self._stream(stream).consumers.get(name)
        if consumer is None:
            raise Refusal(NO_CONSUMER, "consumer not found", 404)
        return consumer

    def _instant(self) -> str:
        return self._scheduler.wall().isoformat(timespec="microseconds").replace("+00:00", "Z")
