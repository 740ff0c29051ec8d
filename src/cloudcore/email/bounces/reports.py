"""Parse reports that a delivery failed, is delayed, or led to a complaint.

Delivery reports are parsed by RFC 3464, complaints by RFC 5965 (ARF), and other bounces by
``flufl.bounce``. The text is written by strangers and may be malformed: it is believed only about
the delivery whose return path received it.
"""

from __future__ import annotations

import email
import logging
import re
from collections.abc import Iterator, Sequence
from email.message import Message
from typing import Any, Final, Literal, NamedTuple

MOST_BYTES: Final = 128 * 1024
"""Bytes of a mail that are read. The report precedes the message that it is about."""
MOST_REASON: Final = 500
_MOST_GUESSED_BYTES: Final = 32 * 1024
_MOST_GUESSED_LINE: Final = 200
"""The patterns for other formats take time quadratic in the length of a line."""

Kind = Literal["hard", "soft", "delayed", "complaint"]
"""``hard``: failed permanently (5.x.x); ``soft``: given up after temporary failures (4.x.x);
``delayed``: another server still tries; ``complaint``: reported as unwanted."""
_MILDEST: Final = ("", "delayed", "soft", "hard")
_COMPLAINTS: Final = frozenset({"abuse", "fraud", "opt-out", "virus"})
"""The feedback types that are complaints. Others are not: ``not-spam`` (RFC 6430), ``auth-failure``
(RFC 6591)."""
_STATUS: Final = re.compile(r"(?<![\d.])([245])\.\d{1,3}\.\d{1,3}(?![\d.])")
"""A status code of RFC 3463, such as 5.1.1."""
_REPLY: Final = re.compile(r"(?<![\d.])([45])[0-5]\d(?=[ -])")
"""A reply code of RFC 5321 §4.2, such as 550."""


class DeliveryReport(NamedTuple):
    """A report about a delivery."""

    kind: Kind
    reason: str
    """The mail server's answer or the type of complaint, on one line, for the sender of the
    message."""


class _RecipientStatement(NamedTuple):
    """What a delivery report states about one recipient."""

    kind: str
    """A `Kind`; empty if nothing failed."""
    reason: str
    addresses: Sequence[str]


def read_report(data: bytes, address: str) -> DeliveryReport | None:
    """Return the report in a mail about the delivery to `address`, or None if there is none."""
    try:
        mail = email.message_from_bytes(data[:MOST_BYTES])
        parts = _parts(mail)
        if (feedback := _first(parts, "message/feedback-report")) is not None:
            return _complaint(feedback)
        if (status := _first(parts, "message/delivery-status")) is not None:
            return _delivery(status, address)
        return _guessed(data, address)
    except Exception:  # noqa: BLE001 - parsers of mail fail in many ways on what strangers make
        return None


def _parts(mail: Message) -> Sequence[Any]:
    """Return the direct parts of a multipart or nested message; empty for any other mail."""
    payload = mail.get_payload()
    return payload if isinstance(payload, list) else []


def _first(parts: Sequence[Any], content_type: str) -> Message | None:
    return next((each for each in parts if each.get_content_type() == content_type), None)


# Complaints


def _complaint(part: Message) -> DeliveryReport | None:
    """Return the complaint in a feedback report, or None if its type is not a complaint."""
    for fields in _parts(part):
        feedback = _field(fields, "Feedback-Type").lower()
        if feedback in _COMPLAINTS:
            return DeliveryReport("complaint", feedback)
    return None


# Reports of delivery


def _delivery(part: Message, address: str) -> DeliveryReport | None:
    """Return the mildest statement about `address`, or if there is none, about any address.

    Return None if that statement is no failure or delay. Reports name other addresses if an alias
    or a mailing list forwards mail.
    """
    said = [each for fields in _parts(part) if (each := _recipient(fields)) is not None]
    own = [each for each in said if address.lower() in each.addresses]
    mildest = min(own or said, key=lambda each: _MILDEST.index(each.kind), default=None)
    if mildest is None or not mildest.kind:
        return None
    return DeliveryReport(mildest.kind, mildest.reason)  # type: ignore[arg-type]  # one of `_MILDEST`


def _recipient(fields: Message) -> _RecipientStatement | None:
    """Parse the fields of one recipient (RFC 3464 §2.3); return None for those of the message."""
    action, status = _field(fields, "Action").lower(), _field(fields, "Status")
    if not action and not status:
        return None
    diagnostic = _field(fields, "Diagnostic-Code")
    code = _code(status) or _code(diagnostic)
    if action.startswith("delayed"):
        kind = "delayed"
    elif action.startswith(("fail", "error")):  # OpenSMTPD writes error
        kind = "hard" if code == "5" else "soft"
    elif action:
        kind = ""  # delivered, relayed, expanded
    else:
        kind = {"4": "delayed", "5": "hard"}.get(code, "")
    named = (_field(fields, name) for name in ("Original-Recipient", "Final-Recipient"))
    addresses = [each.rpartition(";")[2].strip(" <>").lower() for each in named if each]
    words = diagnostic.partition(";")[2].strip() or diagnostic or status
    return _RecipientStatement(kind, _line(words), addresses)


def _field(fields: Message, name: str) -> str:
    return str(fields.get(name, "")).strip()


def _code(text: str) -> str:
    """Return the first digit of the status code in a text (2, 4 or 5), or an empty string."""
    found = _STATUS.search(text) or _REPLY.search(text)
    return found[1] if found else ""


# Other forms


def _guessed(data: bytes, address: str) -> DeliveryReport | None:
    """Return the report in a bounce of a non-standard format; None if `address` is not in it."""
    from flufl.bounce import all_failures  # noqa: PLC0415 - takes time, and is rarely needed

    logging.getLogger("flufl.bounce").setLevel(logging.CRITICAL)  # a line for each pattern
    lines = [each[:_MOST_GUESSED_LINE] for each in data[:_MOST_GUESSED_BYTES].splitlines()]
    mail = email.message_from_bytes(b"\n".join(lines))
    delayed, failed = (
        {each.decode("ascii", "replace").lower() for each in found} for found in all_failures(mail)
    )
    if address.lower() in failed:
        words = next(_answers(mail), "")
        return DeliveryReport("soft" if _code(words) == "4" else "hard", _line(words))
    return DeliveryReport("delayed", "") if address.lower() in delayed else None


def _answers(mail: Message) -> Iterator[str]:
    """Yield the lines of a mail's plain text that contain a status code."""
    for part in _parts(mail) or (mail,):
        if part.get_content_type() == "text/plain":
            body = part.get_payload(decode=True)
            text = body.decode("utf-8", "replace") if isinstance(body, bytes) else ""
            yield from (line for line in text.splitlines() if _code(line))


def _line(text: str) -> str:
    """Return a text on one line, printable and truncated."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(shown.split())[:MOST_REASON]
