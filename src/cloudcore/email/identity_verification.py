"""Verify sending identities: look up the DKIM record of a domain, or mail a link to an address.

The record is looked up regularly: once its owner has removed it, no mail may be sent from the
domain. While no name server answers, the status does not change.
"""

from __future__ import annotations

from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from functools import partial
from typing import Final
from urllib.parse import urlencode

from msgspec import structs

from cloudcore.account_rows import handle_of
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.email.dkim import is_record_of, record_value
from cloudcore.email.needs import EmailNeeds
from cloudcore.email.resources import FAILED, VERIFIED, SendingIdentity, record_name
from cloudcore.email.sender_rows import IDENTITY_ROWS, list_due, lock_confirmed_by
from cloudcore.keyring import Keyring
from cloudcore.outbound.dns_resolver import DnsFailed
from cloudcore.outbound.mail import MailRefused
from cloudcore.outbound.mail_policy import message_id_of
from cloudcore.resources.confirmations import (
    CONFIRMED,
    BadToken,
    count_confirmation,
    token_hash,
    token_of,
    unconfirmed,
)
from cloudcore.resources.workflow import Goal, Problem, Step, StepAttempt, StepDone, StepRetry, Work

CONFIRM_PATH: Final = "/v1/identity-confirmations"
_SERVICE: Final = "email"


def waiting(identity: SendingIdentity, keyring: Keyring, now: int) -> SendingIdentity:
    """Return an address identity with a new confirmation token, and its mail due now."""
    fields = unconfirmed(keyring, _SERVICE, identity.id, now)
    return structs.replace(identity, **fields, check_at=now)


def count_mail(tx: Connection, identity: SendingIdentity, now: int) -> None:
    """Count a confirmation mail; raise `TooManyConfirmations` if there were too many."""
    count_confirmation(tx, _SERVICE, "address", identity.value, identity.account_id, now)


def confirm(tx: Connection, token: str, now: int) -> SendingIdentity:
    """Verify the identity whose confirmation link has this token; return the identity.

    Raise `BadToken` if the token is unknown or expired.
    """
    found = lock_confirmed_by(tx, token_hash(token))
    if found is None or (found.confirmation_expires_at or 0) <= now:
        raise BadToken("address")
    return IDENTITY_ROWS.save(
        tx,
        structs.replace(
            found,
            status="verified",
            verified_at=now,
            check_at=None,
            faults=(),
            updated_at=now,
            **CONFIRMED,
        ),
    )


def mail_of(
    identity: SendingIdentity, account: str, keyring: Keyring, url: str, sender: str
) -> EmailMessage:
    """Return the confirmation mail for an address.

    `account` is the account's name, `url` the platform's base URL, `sender` the mailbox that the
    mail is from.
    """
    assert identity.confirmation_nonce is not None
    token = token_of(keyring, _SERVICE, identity.id, identity.confirmation_nonce)
    query = urlencode({"token": token})
    mail = EmailMessage(policy=SMTP)
    mail["From"] = sender
    mail["To"] = Address(addr_spec=identity.value)
    mail["Subject"] = "Confirm your address"
    mail["Message-ID"] = message_id_of(f"{identity.id}.{identity.asked}", sender)
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(
        f"The account {account} of {url} wants to send mail from\n{identity.value}.\n\n"
        f"To allow that, open this page within 72 hours:\n{url}{CONFIRM_PATH}?{query}\n\n"
        "If you do not know what this is, do nothing.\n"
    )
    return mail


EVERY_SECONDS: Final = 60
PENDING_SECONDS: Final = 72 * 3600
"""A domain fails if its record is still missing after this time."""
_PAUSES: Final = {"pending": 300, "verified": 3600, "failed": 3600}
"""Seconds between two lookups of a record, by status."""
_PAGE: Final = 100

Outcome = StepDone[SendingIdentity] | StepRetry[SendingIdentity]


def goal(identity: SendingIdentity, now: int) -> Goal | None:
    """Return the goal of an identity's next step, or None if nothing is due."""
    if identity.check_at is None or identity.check_at > now:
        return None
    return Goal("look" if identity.kind == "domain" else "ask", identity.asked)


def problem_of(identity: SendingIdentity, texts: list[bytes]) -> Problem | None:
    """Return what is wrong with the TXT records at a domain's selector; None if they are right."""
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


async def _look(found: SendingIdentity, needs: EmailNeeds, _attempt: StepAttempt) -> Outcome:
    """Look up the DKIM record of a domain; the outcome stores the result."""
    assert found.dkim_selector is not None
    try:
        texts = await needs.resolver.texts(record_name(found.dkim_selector, found.value))
    except DnsFailed as error:
        return StepRetry(faults=[Problem("DNS_UNREACHABLE", str(error))])
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
            # If the owner asked for a check meanwhile, the record may be newer than this lookup.
            check_at=following if current.asked == found.asked else current.check_at,
            faults=tuple(each for each in current.faults if problem and each.code == problem.code),
        )

    return StepDone(
        change=change, also=partial(_tell, needs), faults=[] if problem is None else [problem]
    )


async def _ask(found: SendingIdentity, needs: EmailNeeds, _attempt: StepAttempt) -> Outcome:
    """Send the confirmation mail to an address; if that fails, the outcome has a fault."""

    def change(current: SendingIdentity, _now: int) -> SendingIdentity:
        is_same = current.asked == found.asked
        return structs.replace(current, check_at=None) if is_same else current

    if found.confirmation_nonce is None:
        return StepDone(change=change)
    if needs.mail is None:
        words = "this install sends no mail: its operator has set no smarthost"
        return StepDone(change=change, faults=[Problem("MAIL_NOT_AVAILABLE", words)])
    account = await needs.database.read(handle_of, found.account_id)
    mail = mail_of(found, account, needs.keyring, needs.url, needs.mail.sender)
    try:
        await needs.mail.send(mail)
    except MailRefused as error:
        if error.is_permanent:
            return StepDone(change=change, faults=[Problem("MAIL_REFUSED", str(error))])
        return StepRetry(faults=[Problem("MAIL_UNREACHABLE", str(error))])
    return StepDone(change=change)


def _tell(
    needs: EmailNeeds, tx: Connection, before: SendingIdentity, after: SendingIdentity
) -> None:
    """Publish an event if the status of the domain has changed."""
    if before.status != after.status:
        tell_status(needs, tx, after)


def tell_status(needs: EmailNeeds, tx: Connection, identity: SendingIdentity) -> None:
    """Publish an event with the new status of an identity."""
    event = VERIFIED if identity.status == "verified" else FAILED
    needs.events.emit(tx, identity.account_id, event, [identity.event_data], identity.updated_at)


WORK: Final[Work[SendingIdentity, EmailNeeds]] = Work(
    IDENTITY_ROWS, goal=goal, steps={"look": Step(_look, 60, 3600), "ask": Step(_ask, 30, 3600)}
)


async def check_due(needs: EmailNeeds) -> None:
    """Wake the jobs of the identities whose lookup or confirmation mail is due."""
    now, after = needs.clock(), -1
    while found := await needs.database.read(list_due, now, after, _PAGE):
        for account_id, identity_id, _ in found:
            await needs.database.write(_wake, account_id, identity_id, now)
        after = found[-1][2]


def _wake(tx: Connection, account_id: str, identity_id: str, now: int) -> None:
    found = IDENTITY_ROWS.find(tx, account_id, identity_id)
    if found is not None:
        WORK.wake(tx, found, now, hastens=False)
