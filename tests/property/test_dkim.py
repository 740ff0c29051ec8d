"""Signatures of mail by DKIM: any message verifies, and none does that was changed on its way."""

from __future__ import annotations

from email.message import EmailMessage
from email.policy import SMTP
from typing import Final

import dkim
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cloudcore.email.dkim import is_record_of, new_key, record_value, signed
from cloudcore.email.resources import SendingIdentity
from tests.soak import times

KEY, PUBLIC = new_key()
RECORD: Final = record_value(PUBLIC)
ADDRESS: Final = SendingIdentity(
    id="0",
    account_id="0",
    region="local",
    created_at=0,
    updated_at=0,
    value="ada@shop.example",
    kind="address",
)
OF_DOMAIN: Final = {"value": "shop.example", "kind": "domain", "status": "verified"}
DOMAIN: Final = replace(ADDRESS, **OF_DOMAIN, dkim_selector="m1", dkim_public=PUBLIC)
HEAD: Final = (
    b"From: Ada <ada@shop.example>\r\n"
    b"To: b@x.example\r\n"
    b"Cc: c@x.example\r\n"
    b"Subject: Hello\r\n"
    b"Date: Fri, 01 Jan 2027 00:00:00 +0000\r\n"
    b"Message-ID: <1@shop.example>\r\n"
    b"MIME-Version: 1.0\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\n"
    b"Content-Transfer-Encoding: 8bit\r\n"
    b"List-Unsubscribe: <https://shop.example/u>\r\n"
    b"List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"
)
BODIES: Final = st.one_of(
    st.just(b""),
    st.lists(st.sampled_from([b"", b" ", b"\t x ", b".", b"a" * 990, "é€🐳".encode()])).map(
        b"\r\n".join
    ),
    st.binary(max_size=3000).map(lambda text: text.replace(b"\r", b" ").replace(b"\n", b"\r\n")),
)
TEXTS: Final = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=120
).map(lambda text: text.replace("=?", ""))


def verifies(mail: bytes) -> bool:
    """Return True if a receiver that finds the record takes the signature."""
    return bool(dkim.verify(mail, dnsfunc=lambda *_, **__: RECORD.encode()))


@settings(max_examples=times(40))
@given(body=BODIES)
def test_any_body_verifies(body: bytes) -> None:
    mail = signed(HEAD + b"\r\n" + body, DOMAIN, lambda _: KEY)
    assert mail.endswith(HEAD + b"\r\n" + body)
    assert verifies(mail)
    assert not verifies(mail + b"\r\nmore")


@settings(max_examples=times(30))
@given(subject=TEXTS, name=TEXTS, text=st.text(st.characters(exclude_categories=["Cs"])))
def test_what_the_mail_library_writes_verifies(subject: str, name: str, text: str) -> None:
    mail = EmailMessage(policy=SMTP)
    mail["From"] = "ada@shop.example"
    mail["To"] = "b@x.example, " * 30 + "c@x.example"
    mail["Subject"] = subject
    mail["Message-ID"] = "<1@shop.example>"
    mail.set_content(text)
    mail.add_attachment(text.encode(), maintype="application", subtype="x", filename=name or "x")
    assert verifies(signed(bytes(mail), DOMAIN, lambda _: KEY))


FIELDS: Final = [line.partition(b":")[0] for line in HEAD.split(b"\r\n")[:-1]]


@pytest.mark.parametrize("field", FIELDS, ids=bytes.decode)
def test_a_field_that_is_changed_or_taken_away_breaks_the_signature(field: bytes) -> None:
    mail = signed(HEAD + b"\r\nHi.\r\n", DOMAIN, lambda _: KEY)
    assert verifies(mail)
    assert not verifies(mail.replace(b"\r\n" + field + b": ", b"\r\n" + field + b": other "))
    lines = mail.split(b"\r\n")
    kept = [each for each in lines if not each.startswith(field + b": ")]
    assert len(kept) == len(lines) - 1
    assert not verifies(b"\r\n".join(kept))


@pytest.mark.parametrize("where", ["first", "last"])
def test_a_second_sender_breaks_the_signature(where: str) -> None:
    mail = signed(HEAD + b"\r\nHi.\r\n", DOMAIN, lambda _: KEY)
    forged = b"From: eve@evil.example\r\n"
    head, _, body = mail.partition(b"\r\n\r\n")
    changed = forged + mail if where == "first" else head + b"\r\n" + forged + b"\r\n" + body
    assert not verifies(changed)


def test_a_relay_may_add_fields_and_fold_lines_anew() -> None:
    mail = signed(HEAD + b"\r\nHi.\r\n", DOMAIN, lambda _: KEY)
    folded = mail.replace(b"Subject: Hello", b"Subject:\r\n  Hello")
    assert verifies(b"Received: from a by b\r\n" + folded)


def test_a_signature_names_its_domain_and_what_it_covers() -> None:
    mail = signed(HEAD + b"\r\nHi.\r\n", DOMAIN, lambda _: KEY)
    field = mail[: mail.index(b"From:")].removeprefix(b"DKIM-Signature: ")
    tags = dict(b"".join(each.split()).split(b"=", 1) for each in field.split(b";"))
    assert (tags[b"a"], tags[b"c"]) == (b"rsa-sha256", b"relaxed/relaxed")
    assert (tags[b"d"], tags[b"s"]) == (b"shop.example", b"m1")
    # Once more than there are: what verifies here looks for a second sender by itself, others rely
    # on that.
    covered = sorted([*(each.lower() for each in FIELDS), b"from"])
    assert sorted(tags[b"h"].split(b":")) == covered


def test_mail_of_an_address_alone_stays_as_it_is() -> None:
    assert signed(HEAD + b"\r\n", ADDRESS, lambda _: KEY) == HEAD + b"\r\n"


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        (RECORD, True),
        (f"v=DKIM1;p={PUBLIC}", True),
        (f"p={PUBLIC}", True),
        (f"v=DKIM1; h=sha1:sha256; s=email; t=s; n=a note; p={PUBLIC};", True),
        (f"v=DKIM1; k=rsa; p={PUBLIC[:100]} {PUBLIC[100:]}", True),
        ("v=DKIM1; k=rsa; p=", False),  # revoked
        (f"v=DKIM1; k=rsa; p={PUBLIC[:-4]}", False),
        (f"v=DKIM2; k=rsa; p={PUBLIC}", False),
        (f"v=DKIM1; k=ed25519; p={PUBLIC}", False),
        (f"v=DKIM1; h=sha1; p={PUBLIC}", False),
        (f"v=DKIM1; s=other; p={PUBLIC}", False),
        ("", False),
        ("v=spf1 -all", False),
        ("é", False),
    ],
)
def test_which_records_let_a_key_sign(text: str, *, is_ours: bool) -> None:
    assert is_record_of(text.encode(), PUBLIC) is is_ours
