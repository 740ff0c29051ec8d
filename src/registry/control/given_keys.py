"""The ``kms_key`` of a request body: the key that something is to be bound to."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from cloudcore.errors import InvalidInput
from cloudcore.kms.rows import key_to_bind
from cloudcore.resource_references import Scope
from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext
from registry.services.encryption_bindings import KeyToBind

_USE: Final = "kms:UseKey"
"""The action on a key that binding something to it needs."""

GivenKey = Annotated[
    str, Meta(max_length=512, description="The id, the name or the CRN of an `aes-256` key.")
]


async def key_to_bind_to(ctx: RequestContext, value: str, *, seals: bool) -> KeyToBind:
    """Return the key that `value` names, to which the caller may bind something.

    `seals` is False if this registry stores new blobs in plain.

    Raises:
        InvalidInput: `value` names no key of the account, or one that cannot seal blobs now; or
            nothing is sealed.
        AccessDenied: the caller may not use it (`kms:UseKey`).
        KeyMissing: there is no such key.

    """
    if not seals:
        raise InvalidInput(
            "kms_key: this registry does not encrypt new blobs (ENTREPOT_SEALING is off)",
            field="kms_key",
            reason="sealing_disabled",
        )
    scope = Scope(account_of(ctx), ctx.settings.region)
    key = await ctx.database.read(key_to_bind, scope, value, ctx.right_to(_USE))
    return KeyToBind(key.id, ctx.new_id())
