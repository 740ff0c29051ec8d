"""Choose the source address of a message within the warm-up caps, and count outcomes.

Recipients are counted in the transaction that accepts the message, while the addresses of the pool
are locked. So concurrent transactions never exceed a cap together, and counts survive a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from cloudcore.db.base import Connection
from cloudcore.email.dedicated_ip import (
    DEDICATED_IP,
    PAUSED,
    counted,
    room,
    share,
    with_outcome,
)
from cloudcore.email.messages.rows import ROWS as MESSAGES
from cloudcore.email.messages.rows import Recipient, save_source
from cloudcore.email.sender_rows import DEDICATED_IP_ROWS, lock_address, lock_pool
from cloudcore.errors import NotFound
from cloudcore.events import Events


def sources_of(
    tx: Connection, account_id: str, region: str, ip_pool_id: str | None, count: int, now: int
) -> Sequence[str | None]:
    """Return the source addresses for mail to `count` recipients, and count these recipients.

    Each recipient gets the pool's address that has used the smallest part of today's cap. A source
    is None, which means the shared address, if there is no pool or all its addresses have reached
    their caps.
    """
    if ip_pool_id is None or count == 0:
        return [None] * count
    found = {each.address: each for each in lock_pool(tx, account_id, region, ip_pool_id)}
    used = Counter[str]()

    def has_room(address: str) -> bool:
        left = room(found[address], now)
        return left is None or left > used[address]

    sources: list[str | None] = []
    while len(sources) < count and (fit := [each for each in found if has_room(each)]):
        best = min(fit, key=lambda each: share(found[each], used[each], now))
        used[best] += 1
        sources.append(best)
    for address, recipients in used.items():
        DEDICATED_IP_ROWS.save(tx, counted(found[address], recipients, now))
    return [*sources, *[None] * (count - len(sources))]


def counted_again(tx: Connection, of: Recipient, ip_pool_id: str | None, now: int) -> Recipient:
    """Count a recipient whose mail is retried on another day; return it with a new source address.

    Mail counts against the cap of the day on which it is sent, not accepted. The message is locked
    before the addresses, the same order as in the transaction that stores an outcome.
    """
    with suppress(NotFound):
        MESSAGES.lock(tx, of.account_id, of.message_id)
    (source,) = sources_of(tx, of.account_id, of.region, ip_pool_id, 1, now)
    changed = of._replace(source_ip=source)
    save_source(tx, changed)
    return changed


def note_outcome(
    tx: Connection, events: Events, of: Recipient, now: int, *, was_sent: bool = False
) -> None:
    """Count, for the source address, whether mail to a recipient was accepted or bounced.

    `was_sent`: the mail was counted as accepted before it bounced. If over a tenth of the last
    thousand outcomes are bounces, pause the address and publish an event.
    """
    if of.source_ip is None or of.status not in ("sent", "bounced"):
        return
    before = lock_address(tx, of.account_id, of.region, of.source_ip)
    if before is None:  # the account no longer has it
        return
    bounced = of.status == "bounced"
    after = DEDICATED_IP_ROWS.save(tx, with_outcome(before, bounced=bounced, was_sent=was_sent))
    if after.warmup_status != before.warmup_status:
        paused = {"id": after.id, "crn": DEDICATED_IP.crn_of(after), "name": after.address}
        events.emit(tx, of.account_id, PAUSED, [{"dedicated_ip": paused}], now)
