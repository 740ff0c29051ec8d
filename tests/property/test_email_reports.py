"""Reports of delivery and complaints are read in all their forms; no text of a stranger fails."""

from __future__ import annotations

from email.message import EmailMessage
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cloudcore.email.bounces.reports import (
    MOST_BYTES,
    MOST_REASON,
    DeliveryReport,
    Kind,
    read_report,
)

VECTORS: Final = Path(__file__).parent.parent / "vectors" / "returned_mail"
GONE: Final = "gone@mx.test"
FULL: Final = "full@mx.test"
FORMS: Final = sorted(path.name for path in VECTORS.iterdir())


def vector(name: str) -> bytes:
    """Return a mail as SMTP carries it."""
    return (VECTORS / f"{name}.eml").read_bytes().replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    ("name", "address", "report"),
    [
        ("postfix_refused", GONE, DeliveryReport("hard", "550 5.1.1 no such user here")),
        ("postfix_no_enhanced_code", "old@mx.test", DeliveryReport("hard", "550 sorry")),
        ("postfix_expired", FULL, DeliveryReport("soft", "452 4.2.2 mailbox full")),
        ("postfix_delayed", FULL, DeliveryReport("delayed", "452 4.2.2 mailbox full")),
        (
            "exim_refused",
            GONE,
            DeliveryReport(
                "hard", "host mx.test [192.0.2.7]: 550 5.1.1 <gone@mx.test>: no such user"
            ),
        ),
        ("qmail_refused", GONE, DeliveryReport("hard", "Remote host said: 550 5.1.1 unknown user")),
        ("qmail_expired", FULL, DeliveryReport("soft", "Remote host said: 452 4.2.2 mailbox full")),
        ("arf_abuse", GONE, DeliveryReport("complaint", "abuse")),
        ("arf_not_spam", GONE, None),
        ("vacation", GONE, None),
    ],
)
def test_a_mail_says_what_became_of_a_delivery(
    name: str, address: str, report: DeliveryReport | None
) -> None:
    assert read_report(vector(name), address) == report
    assert read_report(vector(name).replace(b"\r\n", b"\n"), address.upper()) == report


@pytest.mark.parametrize("name", ["exim_refused", "qmail_refused"])
def test_a_form_without_fields_must_name_the_address_itself(name: str) -> None:
    assert read_report(vector(name), "ada@mx.test") is None


def test_of_a_list_whose_members_differ_the_mildest_counts() -> None:
    said = vector("list_members")
    assert read_report(said, "team@lists.test") is None
    for own in (GONE, GONE.upper()):
        assert read_report(said, own) == DeliveryReport("hard", "550 5.1.1 no such user here")


def fields(action: str, status: str, diagnostic: str = "", address: str = GONE) -> bytes:
    """Return a report with these fields of one recipient."""
    lines = (
        *("Content-Type: multipart/report; boundary=b", "", "--b", ""),
        *("Sorry.", "--b", "Content-Type: message/delivery-status", ""),
        *("Reporting-MTA: dns; mx.test", "", f"Final-Recipient: rfc822; {address}"),
        *(f"Action: {action}", f"Status: {status}", f"Diagnostic-Code: {diagnostic}"),
        *("", "--b--", ""),
    )
    return "\r\n".join(lines).encode()


@given(
    st.sampled_from(["failed", "FAILED", "delayed", "delivered", "relayed", "expanded", "error"]),
    st.sampled_from("245"),
    st.tuples(st.integers(0, 999), st.integers(0, 999)),
)
def test_the_class_of_the_status_tells_hard_from_soft(
    action: str, of: str, details: tuple[int, int]
) -> None:
    report = read_report(fields(action, f"{of}.{details[0]}.{details[1]}"), GONE)
    failed: Kind = "hard" if of == "5" else "soft"
    expected = {"failed": failed, "error": failed, "delayed": "delayed"}.get(action.lower())
    assert (report and report.kind) == expected


def test_without_a_status_the_reply_counts_and_without_both_it_is_soft() -> None:
    for diagnostic, kind in (("smtp; 550 no", "hard"), ("smtp; 450 later", "soft"), ("", "soft")):
        report = read_report(fields("failed", "", diagnostic), GONE)
        assert report is not None
        assert report.kind == kind


@pytest.mark.parametrize(
    ("status", "kind"), [("5.1.1", "hard"), ("4.2.2", "delayed"), ("2.0.0", None)]
)
def test_without_an_action_the_status_alone_says_what_happened(
    status: str, kind: str | None
) -> None:
    said = fields("", status).replace(b"Action: \r\n", b"")
    report = read_report(said, GONE)
    assert (report and report.kind) == kind


@given(st.text(min_size=1))
@example("550 \x1b[31mred\x07 \u202etext" + "x" * MOST_REASON)
def test_a_reason_is_one_line_that_can_be_shown(diagnostic: str) -> None:
    report = read_report(fields("failed", "5.1.1", f"smtp; {diagnostic}"), GONE)
    assert report is not None
    assert len(report.reason) <= MOST_REASON
    assert report.reason.isprintable()


@given(st.binary(max_size=2000))
def test_any_bytes_say_nothing(data: bytes) -> None:
    assert read_report(data, GONE) is None


@given(st.sampled_from(FORMS), st.data())
def test_a_damaged_report_fails_nothing(name: str, data: st.DataObject) -> None:
    said = bytearray(vector(name.removesuffix(".eml")))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(said) - 1))
        end = data.draw(st.integers(at, min(len(said), at + 40)))
        said[at:end] = data.draw(st.binary(max_size=8) | st.sampled_from([b"\r\n", b"--", b":"]))
    report = read_report(bytes(said), GONE)
    assert report is None or report.reason.isprintable()


def test_a_mail_of_parts_within_parts_fails_nothing() -> None:
    deep = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n)
        for n in range(2000)
    )
    assert read_report(deep, GONE) is None


def test_a_report_in_a_message_that_is_quoted_says_nothing() -> None:
    mail = EmailMessage()
    mail["Subject"] = "Look what I got"
    mail.set_content("See below.")
    inner = EmailMessage()
    inner.set_content("x")
    mail.add_attachment(inner)
    said = mail.as_bytes().replace(b"\nx\n", b"\n" + fields("failed", "5.1.1") + b"\n")
    assert read_report(said, GONE) is None


def test_what_stands_behind_a_large_message_is_not_read() -> None:
    said = fields("failed", "5.1.1")
    assert read_report(said + b"x" * MOST_BYTES, GONE) is not None
    assert read_report(b"X-Long: " + b"x" * MOST_BYTES + b"\r\n" + said, GONE) is None
