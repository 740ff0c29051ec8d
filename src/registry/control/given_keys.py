"""The ``kms_key`` of a request body: the key that something is to be bound to."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from cloudcore.identity.rows.accounts import find_account
from cloudcore.kms.references import KeyScope, key_to_bind
from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext

_USE: Final = "kms:UseKey"
"""The action on a key that binding something to it needs."""

GivenKey = Annotated[
    str, Meta(max_length=512, description="The id, the name or the CRN of an `aes-256` key.")
]


async def key_id_to_bind(ctx: RequestContext, value: str) -> str:
    """Return the id of the key that `value` names, to which the caller may bind something.

    Raises:
        InvalidInput: `value` names no key of the account, or one that cannot seal blobs now.
        KeyMissing: there is no such key.
        AccessDenied: the caller may not use it (`kms:UseKey`).

    """
    account = await ctx.database.read(find_account, account_of(ctx))
    assert account is not None
    scope = KeyScope(account.id, account.handle, ctx.settings.region)

    def authorize(crn: str) -> None:
        ctx.authorize(crn, action=_USE)

    return (await ctx.database.read(key_to_bind, scope, value, authorize)).id
