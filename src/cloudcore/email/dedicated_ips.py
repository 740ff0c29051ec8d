"""``/v1/ip-pools`` and ``/v1/dedicated-ips``: addresses from which only one account sends mail."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from litestar.params import FromPath, JSONBody
from msgspec import structs

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection
from cloudcore.email import sender_rows
from cloudcore.email.dedicated_ip import DEDICATED_IP, DedicatedIP, WarmupStatus, as_of
from cloudcore.email.needs import EmailNeeds
from cloudcore.email.sender_rows import DEDICATED_IP_ROWS, IDENTITY_ROWS, IP_POOL_ROWS
from cloudcore.errors import Conflict
from cloudcore.resources.methods import Methods, Referrer
from cloudcore.resources.routes import custom_method
from cloudcore.web.app import Context, Needs
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import RequestBody, ResponseBody

IP_POOL_METHODS: Final = Methods(
    IP_POOL_ROWS,
    referrers=(Referrer(IDENTITY_ROWS, "ip_pool"), Referrer(DEDICATED_IP_ROWS, "ip_pool")),
)


EVERY_SECONDS: Final = 24 * 3600
"""The pause between two runs of `log_unlisted`."""
_MOST_NAMED: Final = 20
_log = logging.getLogger(__name__)


class RequestDedicatedIP(RequestBody):
    """The pool that a new dedicated IP is to be in."""

    ip_pool: str | None = None
    """Id, CRN or name of an IP pool; empty or absent: the address is in none yet."""


def _before_delete(tx: Connection, found: DedicatedIP) -> None:
    if sender_rows.has_waiting(tx, found.account_id, found.address):
        words = f"mail waits to be sent from {found.address}; take it out of its pool, and wait"
        raise Conflict(words, reason="in_use")


DEDICATED_IP_METHODS: Final = Methods(
    DEDICATED_IP_ROWS,
    as_of=as_of,
    before_delete=_before_delete,
    targets={"ip_pool": IP_POOL_ROWS},
    docs={
        "delete": "Give a dedicated IP back, which another account may get then.\n\nIt is refused"
        " (409) while mail waits to be sent from it.",
    },
    statuses={"delete": (409,)},
)


@DEDICATED_IP_METHODS.answers.creates(
    DEDICATED_IP.path, DEDICATED_IP.action("create"), statuses=(409,)
)
async def request_dedicated_ip(
    data: JSONBody[RequestDedicatedIP], ctx: Context, needs: Needs[EmailNeeds]
) -> Reply[ResponseBody]:
    """Get an address of the operator's inventory that no other account sends from.

    An account has at most 50. It is 409 if no address is left.
    """
    account_id, region = account_of(ctx), ctx.settings.region
    ctx.authorize(DEDICATED_IP.crn(region, account_id, "*"))
    values = await DEDICATED_IP_METHODS.resolved(ctx, {"ip_pool": data.ip_pool or None})
    now = ctx.clock()
    new = DedicatedIP(
        id=ctx.new_id(),
        account_id=account_id,
        region=region,
        created_at=now,
        updated_at=now,
        address="",
        **values,
    )
    wrap, location = DEDICATED_IP_METHODS.one, DEDICATED_IP_METHODS.location
    return await ctx.commit(request, new, needs.dedicated_ips, wrap=wrap, location=location)


@custom_method(DEDICATED_IP_METHODS, "pause", "email:PauseDedicatedIP")
async def pause_dedicated_ip(dedicated_ip_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Let no more mail be accepted for a dedicated IP; mail that waits is still sent from it."""
    return await _changed(ctx, dedicated_ip_id, "paused")


@custom_method(DEDICATED_IP_METHODS, "resume", "email:ResumeDedicatedIP")
async def resume_dedicated_ip(dedicated_ip_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Resume a dedicated IP that is paused; what bounced before is forgotten.

    The days of its warm-up went on meanwhile.
    """
    return await _changed(ctx, dedicated_ip_id, "new")


async def _changed(
    ctx: RequestContext, dedicated_ip_id: str, status: WarmupStatus
) -> Reply[ResponseBody]:
    found, now = await DEDICATED_IP_METHODS.authorized(ctx, dedicated_ip_id), ctx.clock()
    wrap, details = DEDICATED_IP_METHODS.at(now), DEDICATED_IP_METHODS.details_if_changed(now)
    return await ctx.commit(set_status, found, status, now, wrap=wrap, details=details)


def request(tx: Connection, new: DedicatedIP, inventory: Sequence[str]) -> DedicatedIP:
    """Insert a dedicated IP with a free address of the inventory; return the dedicated IP.

    Raises:
        Conflict: no address is free.
        NotFound: the pool was deleted meanwhile.
        QuotaExceeded: the account has reached its quota.

    """
    lock_account(tx, new.account_id)
    use = DEDICATED_IP_ROWS.check_room(tx, new.account_id, new.region)
    if new.ip_pool is not None and IP_POOL_ROWS.hold(tx, new.account_id, new.ip_pool.id) is None:
        raise IP_POOL_ROWS.missing()
    taken = sender_rows.taken(tx, inventory)
    for address in inventory:
        if address not in taken:
            with suppress(Conflict):  # another account was faster
                made = DEDICATED_IP_ROWS.add(tx, structs.replace(new, address=address))
                DEDICATED_IP_ROWS.counted.emit_level(tx, new.account_id, use, new.created_at)
                return made
    raise Conflict("no dedicated IP is left; the operator of the install adds some")


def set_status(tx: Connection, found: DedicatedIP, status: WarmupStatus, now: int) -> DedicatedIP:
    """Pause a dedicated IP (status ``paused``), or resume a paused one (status ``new``); return it.

    Resuming clears `outcomes`. Raise `NotFound` if the dedicated IP was deleted meanwhile.
    """
    old = DEDICATED_IP_ROWS.lock(tx, found.account_id, found.id)
    if (old.warmup_status == "paused") == (status == "paused"):
        return old
    outcomes = old.outcomes if status == "paused" else b""
    changed = structs.replace(old, warmup_status=status, outcomes=outcomes, updated_at=now)
    return DEDICATED_IP_ROWS.save(tx, as_of(changed, now))


async def log_unlisted(needs: EmailNeeds) -> None:
    """Log up to 20 dedicated IPs of accounts that are missing from the operator's inventory."""
    find = partial(sender_rows.others, addresses=needs.dedicated_ips, limit=_MOST_NAMED)
    found = await needs.database.read(find)
    if found:
        _log.warning(
            "accounts send from %s, which email_dedicated_ips does not list (any more)",
            ", ".join(found),
        )
