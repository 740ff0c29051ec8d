"""The record and the resource of keys."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from cloudcore.metering.sku import HOURS_PER_MONTH, Sku
from cloudcore.resources.resource import Description, Filter, Record, Resource, fixed, given, own

KeySpec = Literal["aes-256", "hmac-256", "rsa-2048", "rsa-4096", "ecdsa-p256"]
KeyUsage = Literal["encrypt_decrypt", "generate_verify_mac", "sign_verify"]
KeyState = Literal["enabled", "disabled", "pending_deletion", "deleted"]
KeyOrigin = Literal["customer", "platform"]
KeyName = Annotated[str, Meta(min_length=1, max_length=63)]


class Key(Record, frozen=True, kw_only=True):
    """A key, without its material."""

    name: Annotated[
        KeyName | None,
        fixed("1 to 63 of a-z 0-9 . _ -; fixed", heading="NAME", shows_null=True),
    ]
    """Null once the key is deleted; another key may then take the name."""
    state: Annotated[KeyState, own(heading="STATE")]
    key_spec: Annotated[
        KeySpec, fixed("what it is made of (aes-256, which encrypts)", heading="SPEC")
    ]
    key_usage: Annotated[KeyUsage, fixed("what it is for (as its spec says)")]
    current_version: Annotated[int, own(heading="VERSION", form="number")]
    """The version that encrypts; older versions still decrypt."""
    origin: Annotated[KeyOrigin, own(heading="ORIGIN")]
    """`platform`: created with the account; such a key can be neither disabled nor deleted."""
    deletion_at: Annotated[int | None, own(heading="DELETED AT", form="time", shows_null=True)]
    """When the key will be, or was, deleted."""
    description: Description = ""
    tags: Annotated[dict[str, str], given("a tag of the key")] = field(default_factory=dict)

    @property
    def crn(self) -> str | None:
        """Return the key's CRN, or None once it is deleted."""
        return None if self.name is None else KEY.crn_of(self)


KEY: Final = Resource(
    record=Key,
    service="kms",
    one="key",
    many="keys",
    table="kms_keys",
    filters=(Filter("name"), Filter("state", hides="deleted")),
    methods=("list", "get", "update"),
    actions={
        "create": "CreateKey",
        "list": "DescribeKeys",
        "get": "DescribeKeys",
        "delete": "ScheduleKeyDeletion",
    },
    more_actions=("CancelKeyDeletion", "DisableKey", "EnableKey", "RotateKey", "UseKey"),
    summaries={"kms:UseKey": "Encrypt and decrypt with a key, or let a service use it."},
    methods_with_events=("create",),
)
STORED_KEYS: Final = Sku("kms.keys", "Keys", "key-month", HOURS_PER_MONTH)
