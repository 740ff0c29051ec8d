"""``/v1/keys``: create, show, change, rotate, delete and use the keys of an account.

Each use is recorded in the audit log, without the encrypted data. Responses of uses are not stored
for retries: a repeated request is another use, and fails if the key was disabled meanwhile.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct, field

from cloudcore.db.base import Connection
from cloudcore.errors import invalid_field
from cloudcore.kms import services
from cloudcore.kms.key import KEY, Key, KeyName, KeySpec, KeyUsage
from cloudcore.kms.needs import KmsNeeds
from cloudcore.kms.rows import KEY_ROWS, count_versions, key_to_use, list_versions
from cloudcore.kms.rules import check_usable, usage_of
from cloudcore.kms.services import RotatedMeanwhile
from cloudcore.kms.vault import OVERHEAD
from cloudcore.resource_names import check_name, check_tags
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import Description
from cloudcore.resources.routes import custom_method
from cloudcore.web.app import Context, Needs
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageMeta, PageQuery, read_page
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339


class CreateKey(RequestBody):
    """A new key; its name, spec and usage cannot be changed later."""

    name: KeyName
    key_spec: KeySpec = "aes-256"
    key_usage: KeyUsage | None = None
    """By default, the first usage of the spec: `encrypt_decrypt` for `aes-256` and `rsa-*`."""
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


_ATTEMPTS: Final = 5

KEYS: Final = Methods(
    KEY_ROWS,
    check=services.check_change,
    statuses={"update": (409,)},
    docs={
        "list": "List the account's keys, oldest first; deleted ones only if the filter asks for"
        " them.",
        "get": "Return a key, also a deleted one.",
        "update": "Change the description or the tags of a key.",
    },
)


@KEYS.answers.creates(KEY.path, "kms:CreateKey", statuses=(429,))
async def create_key(
    data: JSONBody[CreateKey], ctx: Context, needs: Needs[KmsNeeds]
) -> Reply[ResponseBody]:
    """Create a key; its material never leaves the service. An account has at most 1,000 keys.

    RSA keys of an account are made one at a time: a request meanwhile gets 429; repeat it later.
    """
    account_id = account_of(ctx)
    check_name(data.name)
    check_tags(data.tags)
    usage = usage_of(data.key_spec, data.key_usage)
    region = ctx.settings.region
    ctx.authorize(KEY.crn(region, account_id, data.name))
    # Checked before the material is made, which takes seconds for RSA, and again at the insert.
    await ctx.database.read(services.check_can_create, account_id, region, data.name)
    key, version = await needs.maker.new_key(
        account_id,
        data.name,
        ctx.clock(),
        spec=data.key_spec,
        usage=usage,
        description=data.description,
        tags=data.tags,
    )
    return await ctx.commit(
        services.create_key,
        key,
        version,
        wrap=KEYS.one,
        location=KEYS.location,
    )


@custom_method(KEYS, "enable", "kms:EnableKey")
async def enable_key(key_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Enable a disabled key; do nothing if it is enabled."""
    return await _commit_state(ctx, services.enable_key, key_id)


@custom_method(KEYS, "disable", "kms:DisableKey")
async def disable_key(key_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Disable a key: nothing is encrypted or decrypted with it until it is enabled."""
    return await _commit_state(ctx, services.disable_key, key_id)


async def _commit_state(
    ctx: RequestContext, change: Callable[[Connection, Key, int], Key], key_id: str
) -> Reply[ResponseBody]:
    """Change the state of a key; write no audit event if the key already has that state."""
    key, now = await KEYS.authorized(ctx, key_id), ctx.clock()
    return await ctx.commit(change, key, now, wrap=KEYS.one, details=KEYS.details_if_changed(now))


@KEYS.answers.begins_deletion(
    KEY.path_of_one, "kms:ScheduleKeyDeletion", query=DeletionQuery, statuses=(409,)
)
async def delete_key(key_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Delete a key in 7 to 30 days; until then it is unusable, and the deletion can be cancelled.

    Then its material is erased: what only this key encrypted can never be read again.
    """
    days = ctx.query(DeletionQuery).pending_window_days
    key = await KEYS.authorized(ctx, key_id)
    return await ctx.commit(services.schedule_deletion, key, days, ctx.clock(), wrap=KEYS.one)


@custom_method(KEYS, "cancel-deletion", "kms:CancelKeyDeletion")
async def cancel_key_deletion(key_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Cancel the deletion of a key. The key is then disabled: enable it to use it again."""
    key = await KEYS.authorized(ctx, key_id)
    return await ctx.commit(services.cancel_deletion, key, ctx.clock(), wrap=KEYS.one)


@custom_method(KEYS, "rotate", "kms:RotateKey")
async def rotate_key(
    key_id: FromPath[str], ctx: Context, needs: Needs[KmsNeeds]
) -> Reply[ResponseBody]:
    """Give an `aes-256` key new material, which encrypts from now on.

    Older versions still decrypt what they encrypted. A key has at most 1,000 versions.
    """
    key = await KEYS.authorized(ctx, key_id)
    for _ in range(_ATTEMPTS):
        services.check_rotatable(key)
        version = await needs.maker.new_version(key, key.current_version + 1, ctx.clock())
        try:
            return await ctx.commit(services.rotate_key, version, ctx.clock(), wrap=KEYS.one)
        except RotatedMeanwhile:
            key = await ctx.database.read(KEY_ROWS.get, key.account_id, key.region, key.id)
    raise RotatedMeanwhile


@get(KEY.path_of_one + "/versions", opt={"action": "kms:DescribeKeys", "query": PageQuery})
async def list_key_versions(key_id: FromPath[str], ctx: Context) -> ManyKeyVersions:
    """List the versions of a key, oldest first; a deleted key has none."""
    key = await KEYS.authorized(ctx, key_id)
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        list_versions,
        count_versions,
        key.account_id,
        key.id,
        key=lambda version: str(version[0]),
    )
    versions = [
        KeyVersionRecord(
            version=number,
            is_current=number == key.current_version,
            created_at=rfc3339(created_at),
        )
        for number, created_at in found
    ]
    return ManyKeyVersions(versions=versions, meta=meta)


MAX_PLAINTEXT: Final = 4096
"""Maximum bytes that a request encrypts; larger data are encrypted with a data key."""
_DATA_KEY_BYTES: Final = 32
_BASE64: Final = {"contentEncoding": "base64"}

T = TypeVar("T")
Base64 = Annotated[str, Meta(extra_json_schema=_BASE64)]
_GivenPlaintext = Annotated[
    str,
    Meta(
        max_length=(MAX_PLAINTEXT + 2) // 3 * 4,
        extra_json_schema=_BASE64,
        description="Base64 of 1 to 4,096 bytes.",
    ),
]
_GivenCiphertext = Annotated[
    str,
    Meta(
        max_length=(MAX_PLAINTEXT + OVERHEAD + 2) // 3 * 4,
        extra_json_schema=_BASE64,
        description="Base64 of what an earlier request returned.",
    ),
]


class Encrypt(RequestBody):
    """The plaintext to encrypt."""

    plaintext: _GivenPlaintext


class Decrypt(RequestBody):
    """The ciphertext to decrypt."""

    ciphertext: _GivenCiphertext


class Encrypted(ResponseBody):
    """A ciphertext, which only the same key decrypts."""

    ciphertext: Base64
    key_version: int


class Decrypted(ResponseBody):
    """A plaintext."""

    plaintext: Base64
    key_version: int
    """The version that encrypted it."""


class DataKey(ResponseBody):
    """A new data key of 32 bytes."""

    plaintext: Base64
    """Encrypt data with it, then discard it."""
    ciphertext: Base64
    """Store it with the data; `decrypt` returns the plaintext."""
    key_version: int


def _use(name: str) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """Return a decorator for a route that uses a key; its path ends in `name`."""
    opt = {"action": "kms:UseKey", "statuses": (409,)}
    return post(f"{KEY.path_of_one}/{name}", status_code=200, opt=opt)


async def _usable(ctx: RequestContext, key_id: str) -> Key:
    key = await KEYS.authorized(ctx, key_id)
    check_usable(key)
    return key


@_use("encrypt")
async def encrypt(
    key_id: FromPath[str], data: JSONBody[Encrypt], ctx: Context, needs: Needs[KmsNeeds]
) -> Reply[Encrypted]:
    """Encrypt up to 4,096 bytes under the current version of an `aes-256` key."""
    key = await _usable(ctx, key_id)
    plaintext = _decoded("plaintext", data.plaintext, MAX_PLAINTEXT)
    sealed = await needs.vault.seal(key.account_id, key.id, "encrypt", plaintext)
    answer = Encrypted(ciphertext=_encoded(sealed.value), key_version=sealed.version)
    return await _answer_use(ctx, key, "encrypt", answer)


@_use("decrypt")
async def decrypt(
    key_id: FromPath[str], data: JSONBody[Decrypt], ctx: Context, needs: Needs[KmsNeeds]
) -> Reply[Decrypted]:
    """Decrypt a ciphertext that any version of this key encrypted."""
    key = await _usable(ctx, key_id)
    ciphertext = _decoded("ciphertext", data.ciphertext, MAX_PLAINTEXT + OVERHEAD)
    opened = await needs.vault.open(key.account_id, key.id, "encrypt", ciphertext)
    answer = Decrypted(plaintext=_encoded(opened.value), key_version=opened.version)
    return await _answer_use(ctx, key, "decrypt", answer)


@_use("generate-data-key")
async def generate_data_key(
    key_id: FromPath[str], ctx: Context, needs: Needs[KmsNeeds]
) -> Reply[DataKey]:
    """Make a data key of 32 random bytes, in plain and encrypted under the key."""
    key = await _usable(ctx, key_id)
    plaintext = os.urandom(_DATA_KEY_BYTES)
    sealed = await needs.vault.seal(key.account_id, key.id, "encrypt", plaintext)
    answer = DataKey(
        plaintext=_encoded(plaintext),
        ciphertext=_encoded(sealed.value),
        key_version=sealed.version,
    )
    return await _answer_use(ctx, key, "generate_data_key", answer)


async def _answer_use(ctx: RequestContext, key: Key, use: str, answer: T) -> Reply[T]:
    """Record the use of a key and reply with `answer`; raise if the key is no longer usable."""
    ids = (key.account_id, key.id)
    return await ctx.commit(key_to_use, *ids, wrap=lambda _: answer, details=lambda _: {"use": use})


def _encoded(value: bytes) -> str:
    return b64encode(value).decode()


def _decoded(field: str, text: str, most: int) -> bytes:
    """Decode base64 (RFC 4648 §4), which must be padded and canonical.

    Raise `InvalidInput` if it is not, or if it encodes no bytes or more than `most` bytes.
    """
    try:
        value = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if not value or _encoded(value) != text:
        raise invalid_field(field, "base64 with padding (RFC 4648, section 4) of at least one byte")
    if len(value) > most:
        raise invalid_field(field, f"at most {most} bytes", "out_of_range")
    return value
