"""The work of sending identities: look for the record of a domain, send the mail to an address.

The record is looked for again and again: mail must not be sent from a domain whose owner has taken
it away. That no name server answers changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec import structs

from cloudcore.account_rows import handle_of
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.email.dkim import is_record_of, record_value
from cloudcore.email.identity_confirming import mail_of
from cloudcore.email.identity_rows import ROWS, list_due
from cloudcore.email.needs import EmailNeeds
from cloudcore.email.sending_identity import FAILED, VERIFIED, SendingIdentity, record_name
from cloudcore.outbound.dns_resolver import DnsFailed
from cloudcore.outbound.mail import MailRefused
from cloudcore.work import Again, Came, Problem, Step, Turn, Wish, Work

EVERY_SECONDS: Final = 60
PENDING_SECONDS: Final = 72 * 3600
"""A domain fails whose record is not there after these."""
_PAUSES: Final = {"pending": 300, "verified": 3600, "failed": 3600}
"""Seconds between two looks for a record, by status."""
_PAGE: Final = 100

Outcome = Came[SendingIdentity] | Again[SendingIdentity]


def wish(identity: SendingIdentity, now: int) -> Wish | None:
    """Return what is to be done with an identity now."""
    if identity.check_at is None or identity.check_at > now:
        return None
    return Wish("look" if identity.kind == "domain" else "ask", identity.asked)


def problem_of(identity: SendingIdentity, texts: list[bytes]) -> Problem | None:
    """Return what is wrong with the TXT records of a domain's selector; None if nothing is."""
    assert identity.dkim_selector is not None
    assert identity.dkim_public is not None
    name = record_name(identity.dkim_selector, identity.value)
    wanted = f"publish {name} TXT {record_value(identity.dkim_public)}"
    if not texts:
        return Problem("DKIM_RECORD_MISSING", f"{name} has no TXT record; {wanted}")
    if len(texts) > 1:
        return Problem("DKIM_RECORD_MISMATCH", f"{name} has several TXT records, not one; {wanted}")
    if not is_record_of(texts[0], identity.dkim_public):
        return Problem("DKIM_RECORD_MISMATCH", f"the TXT record of {name} is another; {wanted}")
    return None


async def _look(found: SendingIdentity, needs: EmailNeeds, _turn: Turn) -> Outcome:
    """Look for the record of a domain."""
    assert found.dkim_selector is not None
    try:
        texts = await needs.resolver.texts(record_name(found.dkim_selector, found.value))
    except DnsFailed as error:
        return Again(faults=[Problem("DNS_UNREACHABLE", str(error))])
    problem = problem_of(found, texts)

    def change(current: SendingIdentity, now: int) -> SendingIdentity:
        status, verified_at = current.status, current.verified_at
        if problem is None:
            if status != "verified":
                status, verified_at = "verified", now
        elif status == "verified" or now - current.created_at > PENDING_SECONDS * MICROSECONDS:
            status = "failed"
        following = now + _PAUSES[status] * MICROSECONDS
        return structs.replace(
            current,
            status=status,
            verified_at=verified_at,
            checked_at=now,
            # Who asked meanwhile may have published it after this look.
            check_at=following if current.asked == found.asked else current.check_at,
            faults=tuple(each for each in current.faults if problem and each.code == problem.code),
        )

    return Came(
        change=change, also=partial(_tell, needs), faults=[] if problem is None else [problem]
    )


async def _ask(found: SendingIdentity, needs: EmailNeeds, _turn: Turn) -> Outcome:
    """Send the mail that asks for the confirmation of an address."""

    def change(current: SendingIdentity, _now: int) -> SendingIdentity:
        is_same = current.asked == found.asked
        return structs.replace(current, check_at=None) if is_same else current

    if found.confirmation_nonce is None:
        return Came(change=change)
    if needs.mail is None:
        words = "this install sends no mail: its operator has set no smarthost"
        return Came(change=change, faults=[Problem("MAIL_NOT_AVAILABLE", words)])
    account = await needs.database.read(handle_of, found.account_id)
    mail = mail_of(found, account, needs.keyring, needs.url, needs.mail.sender)
    try:
        await needs.mail.send(mail)
    except MailRefused as error:
        if error.is_permanent:
            return Came(change=change, faults=[Problem("MAIL_REFUSED", str(error))])
        return Again(faults=[Problem("MAIL_UNREACHABLE", str(error))])
    return Came(change=change)


def _tell(
    needs: EmailNeeds, tx: Connection, before: SendingIdentity, after: SendingIdentity
) -> None:
    """Tell that a domain is verified, or is not any more."""
    if before.status != after.status:
        tell_status(needs, tx, after)


def tell_status(needs: EmailNeeds, tx: Connection, identity: SendingIdentity) -> None:
    """Tell the status of an identity, which has changed."""
    event = VERIFIED if identity.status == "verified" else FAILED
    needs.events.tell(tx, identity.account_id, event, [identity.told], identity.updated_at)


WORK: Final[Work[SendingIdentity, EmailNeeds]] = Work(
    ROWS, wish=wish, steps={"look": Step(_look, 60, 3600), "ask": Step(_ask, 30, 3600)}
)


async def check_due(needs: EmailNeeds) -> None:
    """Wake the work of domains whose record is to be looked for again."""
    now, after = needs.clock(), -1
    while found := await needs.database.read(list_due, now, after, _PAGE):
        for account_id, identity_id, _ in found:
            await needs.database.write(_wake, account_id, identity_id, now)
        after = found[-1][2]


def _wake(tx: Connection, account_id: str, identity_id: str, now: int) -> None:
    found = ROWS.find(tx, account_id, identity_id)
    if found is not None:
        WORK.wake(tx, found, now, hastens=False)
