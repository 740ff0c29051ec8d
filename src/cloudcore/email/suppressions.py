"""``/v1/suppressions``, and the unsubscribe links of recipients (RFC 8058).

The token of a link contains all necessary data, since a recipient may open the link long after the
message was deleted.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlencode

import msgspec
import sqlalchemy as sa
from msgspec import UNSET, UnsetType, structs

from cloudcore import base64url
from cloudcore.db.base import Connection
from cloudcore.db.rows import given
from cloudcore.db.schema import one_of
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.email.messages.rows import Recipient
from cloudcore.email.resources import MESSAGE, SUPPRESSION, Reason, Suppression, folded
from cloudcore.errors import Conflict, invalid_field
from cloudcore.keyring import Keyring
from cloudcore.resource_names import Uuid
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.resources.rows import Rows
from cloudcore.wire import ResponseBody

ROWS: Final = Rows(
    SUPPRESSION, one_of("reason", "auto_bounce", "auto_complaint", "unsubscribe", "manual")
)
_s = ROWS.table.c
_REMOVE_EXPIRED: Final = Statement(
    ROWS.table.delete().where(
        given(_s.account_id, _s.region, _s.folded),
        _s.expires_at <= sa.bindparam("now"),
    )
)

_WHICH: Final = Statement(
    sa.select(_s.folded).where(
        given(_s.account_id, _s.region),
        _s.folded.in_(listed("folded")),
        _s.expires_at.is_(None) | (_s.expires_at > sa.bindparam("now")),
    )
)


class SourceMessage(ResponseBody):
    """The message that caused a suppression."""

    id: Uuid
    crn: str


def _check(new: Suppression, old: Suppression | None, now: int) -> Suppression:
    """Refuse an expiry in the past; bring the address of a new suppression into canonical form."""
    is_new = old is None or new.expires_at != old.expires_at
    if is_new and new.expires_at is not None and new.expires_at <= now:
        raise invalid_field("expires_at", "is past", "out_of_range")
    return structs.replace(new, folded=folded(new.address)) if old is None else new


def _replace_expired(tx: Connection, new: Suppression, old: Suppression | None) -> Suppression:
    """Delete an expired suppression of the same address, so that the new one can be inserted."""
    if old is None:
        tx.execute(
            _REMOVE_EXPIRED,
            account_id=new.account_id,
            region=new.region,
            folded=new.folded,
            now=new.created_at,
        )
    return new


def add_automatic(
    tx: Connection, new_id: str, of: Recipient | Unsubscription, reason: Reason, now: int
) -> Suppression | None:
    """Insert a suppression made by the platform; return None if the address already has one.

    The quota is ignored, as it limits only requests: further mail to this address would harm the
    reputation of all accounts.
    """
    new = Suppression(
        id=new_id,
        account_id=of.account_id,
        region=of.region,
        created_at=now,
        updated_at=now,
        address=of.address,
        folded=of.address.lower(),
        reason=reason,
        source_message_id=of.message_id,
    )
    try:
        return ROWS.add(tx, _replace_expired(tx, new, None))
    except Conflict:
        return None


def _source(found: Suppression) -> SourceMessage | UnsetType:
    if (message := found.source_message_id) is None:
        return UNSET
    return SourceMessage(id=message, crn=MESSAGE.crn(found.region, found.account_id, message))


SUPPRESSIONS: Final = Methods(
    ROWS,
    check=_check,
    before_save=_replace_expired,
    composites=(Composite(name="source_message", shown=SourceMessage | UnsetType, show=_source),),
    docs={"create": "Suppress an address: it gets no mail from the account."},
)


def suppressed(
    tx: Connection, account_id: str, region: str, addresses: Sequence[str], now: int
) -> frozenset[str]:
    """Return which of `addresses`, in canonical form, are suppressed for an account at `now`."""
    wanted = {"account_id": account_id, "region": region, "folded": text_list(addresses)}
    return frozenset(row[0] for row in tx.rows(_WHICH, **wanted, now=now))


PATH: Final = "/v1/email-unsubscriptions"
_MAC_BYTES: Final = 16


class Unsubscription(msgspec.Struct, array_like=True, frozen=True):
    """A recipient, and the account whose mail the recipient unsubscribes from."""

    account_id: str
    region: str
    message_id: str
    """The message that has the link."""
    address: str
    """The recipient's address, with its domain in ASCII."""


def unsubscribe_headers(keyring: Keyring, url: str, of: Unsubscription) -> Mapping[str, str]:
    """Return the unsubscribe headers for one recipient; `url` is the platform's base URL.

    The DKIM signature must cover both headers. ``List-Unsubscribe`` must not be folded into encoded
    words.
    """
    query = urlencode({"token": unsubscribe_token(keyring, of)})
    return {
        "List-Unsubscribe": f"<{url}{PATH}?{query}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def unsubscribe_token(keyring: Keyring, of: Unsubscription) -> str:
    """Return the token of an unsubscribe link."""
    said = msgspec.json.encode(of)
    return base64url.encode(_mac(keyring, said) + said)


def read_unsubscribe_token(keyring: Keyring, token: str) -> Unsubscription | None:
    """Return the content of an unsubscribe token, or None if the token is not ours."""
    with suppress(ValueError):  # not base64, or not ASCII
        read = base64url.decode(token)
        mac, said = read[:_MAC_BYTES], read[_MAC_BYTES:]
        if hmac.compare_digest(mac, _mac(keyring, said)):
            return msgspec.json.decode(said, type=Unsubscription)
    return None


def _mac(keyring: Keyring, said: bytes) -> bytes:
    key = keyring.derive("email unsubscribe link")
    return hmac.digest(key, said, "sha256")[:_MAC_BYTES]
