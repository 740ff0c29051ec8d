"""The sending identities of accounts: their rules, and finding the identity for a sender."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, UnsetType, structs

from cloudcore.db.base import Connection
from cloudcore.email.dkim import new_key, record_value, seal_key
from cloudcore.email.identity_verification import WORK, count_mail, waiting
from cloudcore.email.messages import rows
from cloudcore.email.resources import SendingIdentity, normal, record_name, selector_of
from cloudcore.email.sender_rows import IDENTITY_ROWS, IP_POOL_ROWS
from cloudcore.errors import Conflict, InvalidInput, invalid_field
from cloudcore.keyring import Keyring
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.threads import SLOW_KEYS
from cloudcore.web.context import RequestContext
from cloudcore.wire import ResponseBody


class DkimRecord(ResponseBody):
    """The TXT record that the owner of a domain publishes once."""

    selector: str
    record_name: str
    record_value: str
    """The value in one piece; if a text may have at most 255 characters, publish it in several."""


def _check(new: SendingIdentity, old: SendingIdentity | None, now: int) -> SendingIdentity:
    """Complete a new identity: its value in canonical form, and for a domain the DKIM selector."""
    if old is not None:
        return new
    value, selector = normal(new.value, new.kind), None
    if new.kind == "domain":
        selector = selector_of(new.id)
        record_name(selector, value)
    return structs.replace(new, value=value, dkim_selector=selector, check_at=now)


async def _prepare(ctx: RequestContext, new: SendingIdentity) -> SendingIdentity:
    """Make the DKIM key of a domain, or the confirmation token of an address."""
    if new.kind == "address":
        return waiting(new, ctx.keyring, new.created_at)
    key, public = await SLOW_KEYS.run(new.account_id, new_key)
    return structs.replace(new, dkim_public=public, dkim_key=seal_key(ctx.keyring, new.id, key))


def _before_save(
    tx: Connection, new: SendingIdentity, old: SendingIdentity | None
) -> SendingIdentity:
    if old is None and new.kind == "address":
        count_mail(tx, new, new.created_at)
    return WORK.begin(tx, new, old)


def _before_delete(tx: Connection, found: SendingIdentity) -> None:
    """Refuse to delete an identity from which unsent messages are to be sent."""
    waiting = rows.find_waiting(tx, found.account_id, found.id)
    if waiting is not None:
        words = "a message from it waits to be sent; delete it once that is sent or has failed"
        raise Conflict(words, reason="is_referred_to", message_id=waiting)


def _dkim(found: SendingIdentity) -> DkimRecord | UnsetType:
    if found.dkim_selector is None or found.dkim_public is None:
        return UNSET
    return DkimRecord(
        selector=found.dkim_selector,
        record_name=record_name(found.dkim_selector, found.value),
        record_value=record_value(found.dkim_public),
    )


IDENTITIES: Final = Methods(
    IDENTITY_ROWS,
    check=_check,
    prepare=_prepare,
    before_save=_before_save,
    before_delete=_before_delete,
    targets={"ip_pool": IP_POOL_ROWS},
    composites=(
        Composite(
            name="dkim",
            words="What the owner of a domain publishes; absent for an address.",
            shown=DkimRecord | UnsetType,
            show=_dkim,
        ),
    ),
    docs={
        "create": "Ask to send mail from a domain or an address. An account has at most 1,000.\n\n"
        "A domain is verified once its `dkim` record is published; an address once the link of a"
        " mail that is sent there is confirmed. Mail to one address is asked for at most 10 times"
        " an hour, and 300 times of an account; then it is 429.",
    },
    statuses={"create": (429,), "delete": (409,)},
)


def verify(
    tx: Connection, identity: SendingIdentity, keyring: Keyring, now: int
) -> SendingIdentity:
    """Make the lookup of a domain's record due now, or the mail of a new link to an address.

    Raises:
        NotFound: the identity was deleted meanwhile.
        Conflict: the address is already verified.
        TooManyConfirmations: this address, or all addresses of the account together, got too many
            mails.

    """
    WORK.wake(tx, identity, now)  # first: a step locks its job before the record
    found = IDENTITY_ROWS.lock(tx, identity.account_id, identity.id)
    asked = structs.replace(found, asked=found.asked + 1, check_at=now, updated_at=now)
    if found.kind == "address":
        if found.status == "verified":
            raise Conflict("the address is verified", reason="verified")
        count_mail(tx, found, now)
        asked = waiting(asked, keyring, now)
    return IDENTITY_ROWS.save(tx, asked)


def for_sender(tx: Connection, account_id: str, region: str, address: str) -> SendingIdentity:
    """Return the verified identity for a sender's address, locked until `tx` ends.

    That is the identity of the address itself, or else of its exact domain; parent domains do not
    count.

    Raise `InvalidInput` if there is no such verified identity.
    """
    try:
        value = normal(address, "address")
    except InvalidInput as error:
        raise _unverified(f"it is no address: {address!r}") from error
    for key in (value, value.rpartition("@")[2]):
        found = IDENTITY_ROWS.find_named(tx, account_id, region, key)
        held = found and IDENTITY_ROWS.hold(tx, account_id, found.id)
        if held is not None and held.status == "verified":
            return held
    raise _unverified(f"no verified identity of {address} or its domain")


def signer_of(tx: Connection, identity: SendingIdentity) -> SendingIdentity | None:
    """Return the domain identity whose key signs the mail of an identity; None if there is none.

    For an address, that is its own domain, if the account has verified it.
    """
    if identity.kind == "domain":
        return identity
    found = IDENTITY_ROWS.find_named(tx, identity.account_id, identity.region, identity.domain)
    return found if found is not None and found.status == "verified" else None


def _unverified(words: str) -> InvalidInput:
    return invalid_field("from", words, "not_verified")
