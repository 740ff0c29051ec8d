"""Store bounces and complaints about a delivery, and suppress the recipient's address.

The suppression is made once, when the recipient's status changes: if the account deletes the
suppression, a repeated report does not restore it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final, Literal

from cloudcore.db.base import Connection
from cloudcore.email import suppressions
from cloudcore.email.bounces.reports import DeliveryReport, Kind
from cloudcore.email.bounces.verp import Returned
from cloudcore.email.messages import rows
from cloudcore.email.messages.rows import Recipient
from cloudcore.email.needs import EmailNeeds
from cloudcore.email.resources import MESSAGE, SUPPRESSION, WAITING, MessageStatus
from cloudcore.email.warm_up import note_outcome
from cloudcore.errors import NotFound

SUPPRESSED: Final = SUPPRESSION.event_types_by_action[SUPPRESSION.action("create")]
_OPEN: Final = WAITING | {"sent"}
"""Statuses that a report may change. A report may arrive before the sending job has stored that the
message was accepted."""
_STATUS: Final[dict[Kind, MessageStatus]] = {
    "hard": "bounced",
    "soft": "bounced",
    "complaint": "complained",
}
_CAUSE: Final[dict[Kind, Literal["auto_bounce", "auto_complaint"]]] = {
    "hard": "auto_bounce",
    "complaint": "auto_complaint",
}


async def take_return_mail(needs: EmailNeeds, resources: AsyncExitStack) -> None:
    """Accept mail to return paths until `resources` closes; do nothing if not configured."""
    domain, address = needs.return_mail
    if address is None:
        return
    from cloudcore.email.bounces.mail_server import Reader, taking_mail  # noqa: PLC0415 - few installs take mail

    reader = Reader(
        domain,
        needs.return_key,
        lambda returned: needs.database.read(find_delivery, returned),
        lambda returned, report: needs.database.write(note, needs, returned, report),
    )
    await resources.enter_async_context(taking_mail(reader, domain, *address))


def find_delivery(tx: Connection, returned: Returned) -> Recipient | None:
    """Return the delivery that a return path names, or None if its message is deleted."""
    account_id = rows.account_of(tx, returned.message_id)
    if account_id is None:
        return None
    return rows.find_recipient(tx, account_id, *returned)


def note(tx: Connection, needs: EmailNeeds, returned: Returned, report: DeliveryReport) -> bool:
    """Store a report about a delivery; return False if nothing changes.

    A permanent failure (``hard``) and a complaint suppress the address. If another server reports a
    delay, only the reason is stored; the message is not sent again.
    """
    found = find_delivery(tx, returned)
    if found is None:
        return False
    try:
        rows.ROWS.lock(tx, found.account_id, found.message_id)
    except NotFound:
        return False
    now, found = needs.clock(), find_delivery(tx, returned)
    if found is None or found.status not in _OPEN:
        return False
    changed = found._replace(reason=report.reason or None)
    if report.kind == "delayed":
        if found.status != "sent" or changed == found:
            return False
    else:
        changed = changed._replace(status=_STATUS[report.kind], next_attempt_at=None)
    rows.change_recipient(tx, changed, now)
    if changed.status == "bounced":
        note_outcome(tx, needs.events, changed, now, was_sent=found.status == "sent")
    if report.kind in _CAUSE:
        suppress(tx, needs, changed, _CAUSE[report.kind], now)
    return True


def suppress(
    tx: Connection,
    needs: EmailNeeds,
    to: Recipient,
    reason: Literal["auto_bounce", "auto_complaint"],
    now: int,
) -> None:
    """Suppress a recipient's address, regardless of the quota, and publish an event.

    Do nothing if the address is already suppressed.
    """
    made = suppressions.add_automatic(tx, needs.new_id(), to, reason, now)
    if made is None:
        return
    crn = MESSAGE.crn(to.region, to.account_id, to.message_id)
    told = {
        "suppression": {"id": made.id, "crn": SUPPRESSION.crn_of(made), "name": made.folded},
        "reason": reason,
        "source_message": {"id": to.message_id, "crn": crn},
    }
    needs.events.emit(tx, to.account_id, SUPPRESSED, [told], now)
