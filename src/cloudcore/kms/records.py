"""The bodies of ``/v1/keys`` that do not follow from what a key is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct, field

from cloudcore.kms.key import Description, KeyName, KeySpec, KeyUsage
from cloudcore.web.pagination import PageMeta
from cloudcore.wire import RFC3339, RequestBody, ResponseBody


class CreateKey(RequestBody):
    """A new key; its name, spec and usage are fixed."""

    name: KeyName
    key_spec: KeySpec = "aes-256"
    key_usage: KeyUsage | None = None
    """Without one, the first that the spec has: `encrypt_decrypt` for `aes-256` and `rsa-*`."""
    description: Description = ""
    tags: dict[str, str] = field(default_factory=dict)


class DeletionQuery(Struct, kw_only=True):
    """Options of a deletion."""

    pending_window_days: Annotated[
        int, Meta(ge=7, le=30, description="Days until the key is deleted.")
    ] = 30


class KeyVersionRecord(ResponseBody):
    """A version of a key."""

    version: int
    is_current: bool
    created_at: RFC3339


class ManyKeyVersions(ResponseBody):
    """A page of the versions of a key."""

    versions: Sequence[KeyVersionRecord]
    meta: PageMeta
