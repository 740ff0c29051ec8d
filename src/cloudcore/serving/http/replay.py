"""Answer requests from kept answers, without calling the application."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudcore.serving.asgi import Receive, Scope, Send
from cloudcore.serving.dispatch import new_request_id
from cloudcore.serving.http.request_cycle import RequestCycle
from cloudcore.serving.kept_answers import MOST_HEAD_BYTES, KeptAnswers, KeptEntry
from cloudcore.serving.planes import Planes
from cloudcore.serving.request_record import RequestRecord

if TYPE_CHECKING:
    from cloudcore.serving.http.protocol import HttpProtocol

_READS: Final = ("GET", "HEAD")


def record_of(cycle: RequestCycle, client: str, planes: Planes) -> RequestRecord:
    """Return the record of a request cycle that has ended."""
    head = cycle.head
    state = cycle.scope["state"]
    plane = state.get("plane")
    if plane is None:  # refused before it was dispatched
        plane = planes.find(head.path, head.headers, cycle.connection.port)
    return RequestRecord(
        time.time(),
        time.monotonic() - cycle.started_at,
        state.get("request_id", ""),
        head.method,
        head.path,
        head.query,
        cycle.status,
        0 if cycle.body is None else cycle.body.received,
        max(0, cycle.sent - cycle.unsent) if cycle.unsent else cycle.sent,
        client,
        plane,
        state.get("principal", ""),
        head.traits.user_agent,
        state.get("source"),
        cycle.reason,
        state.get("event", ""),
    )


def keep_answer(cycle: RequestCycle, record: RequestRecord) -> None:
    """Store a complete answer for repetition if the application allows it.

    Only answers to GET and HEAD in HTTP/1.1 are stored, and none if the request has a body or
    ``Expect: 100-continue``, or if the connection ends after the answer.
    """
    connection, head = cycle.connection, cycle.head
    kept = connection.worker.kept
    if kept is None or cycle.keep is None or cycle.rendered is None or cycle.body is not None:
        return
    if head.traits.expects_continue:
        return
    if head.method in _READS and head.http_version == "1.1" and cycle.keep_alive:
        kept.keep(head.raw, cycle.keep, *cycle.rendered, record, connection.server)


def give_kept(connection: HttpProtocol, kept: KeptAnswers, data: bytes) -> bool:
    """Answer the request whose head is `data` from a kept answer; return False if none can be sent.

    Call this while the connection waits for a request, and has received nothing before `data`.
    """
    if len(data) > MOST_HEAD_BYTES:
        return False
    started_at = time.monotonic()
    entry = kept.find(data)
    if entry is None or entry.server != connection.server or not _is_ready(connection):
        return False
    proven = kept.prove(data, entry)
    if proven is False:
        return False
    if proven is not True:  # the database has to be waited for: with a cycle, that has time limits
        cycle = RequestCycle(connection, connection.reader.read(data), b"")
        connection.run(cycle, partial(_give_proven, cycle, entry, proven))
        return True
    request_id = new_request_id()
    _write(connection, entry, request_id)
    if connection.write_paused:  # the client does not read: a cycle limits its time
        cycle = RequestCycle(connection, connection.reader.read(data), b"")
        cycle.started_at = started_at
        connection.run(cycle, partial(_end, cycle, entry, request_id))
        return True
    client = connection.client[0] if connection.client else ""
    now = time.monotonic()
    record = entry.record_again(time.time(), now - started_at, request_id, client)
    connection.answered(record, now)
    return True


def _is_ready(connection: HttpProtocol) -> bool:
    """Return True if an answer may be written now, and another request may follow."""
    is_ending = connection.closing or connection.peer_closed or connection.write_paused
    return not (is_ending or connection.transport.is_closing())


def _write(connection: HttpProtocol, entry: KeptEntry, request_id: str) -> None:
    if entry.noted is not None:
        entry.noted()
    connection.write(entry.answer.rendered(connection.common_lines(), request_id))


async def _give_proven(
    cycle: RequestCycle,
    entry: KeptEntry,
    proven: Awaitable[bool],
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Send the kept answer if `proven` results in True; otherwise call the application."""
    if not await proven:
        await cycle.connection.application(scope, receive, send)
    elif not cycle.disconnected:
        request_id = new_request_id()
        _write(cycle.connection, entry, request_id)
        await _end(cycle, entry, request_id)


async def _end(cycle: RequestCycle, entry: KeptEntry, request_id: str, *_asgi: object) -> None:
    """End a request whose answer is written, once the client has received it."""
    record = entry.record
    cycle.scope["state"] |= {
        "request_id": request_id,
        "plane": record.plane,
        "principal": record.principal,
        "source": record.source,
        "event": record.event,
    }
    cycle.status, cycle.sent = record.status, record.sent
    if cycle.connection.write_paused:
        await cycle.connection.drained(record.sent)
    if not cycle.disconnected:
        cycle.end()
