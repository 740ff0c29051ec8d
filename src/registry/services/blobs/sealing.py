"""Find the KMS key that a push writes under; make and open the data keys of staged bytes."""

from __future__ import annotations

from cloudcore.db.base import Connection
from cloudcore.objects.wraps import WrapBroken, WrappedKey
from cloudcore.quotas.limits import QuotaUse
from registry.blobstore.base import DataKey, ObjectUnknown
from registry.errors import KmsKeyDeleted, KmsKeyDisabled
from registry.metadata.blobs.uploads import Upload, UploadWrap
from registry.metadata.encryption_bindings import effective_key
from registry.metadata.repositories import repository as repositories
from registry.metadata.repositories.repository import Repository
from registry.oci.reference import Name
from registry.services.access.decisions import Rights
from registry.services.blobs.push_cache import CachedTarget
from registry.services.blobs.writing_keys import Seal, UploadKeys, WritingKey
from registry.services.context import ServiceContext
from registry.services.repositories.names import name_unknown, refuse_push, repository_for_push


def _find_writing_key(
    ctx: ServiceContext, tx: Connection, account_id: str, repository_id: str
) -> WritingKey:
    assert ctx.data_keys is not None
    key = effective_key(tx, account_id, repository_id)
    if key.state == "deleted":
        raise KmsKeyDeleted
    if key.state != "enabled":
        raise KmsKeyDisabled
    version = key.current_version
    return WritingKey(
        key.kms_key_id, ctx.data_keys.usable_version(tx, account_id, key.kms_key_id, version)
    )


async def repository_and_key(
    ctx: ServiceContext, name: Name, rights: Rights
) -> tuple[Repository, WritingKey | None, QuotaUse | None]:
    """Return the repository to push to, its KMS key, and the account's stored bytes and limit.

    The repository is created if necessary (`repository_for_push`). The key is None if blobs are
    stored plain; stored bytes and limit are None without a limit. Raise the errors of `key_for` and
    `repository_for_push`.
    """
    found = await ctx.database.read(_find, ctx, name)
    if found is None:
        await repository_for_push(ctx, name, rights)
        found = await ctx.database.read(_find, ctx, name)
    if found is None:
        raise name_unknown(name)
    return found


def cached_target(ctx: ServiceContext, name: Name) -> CachedTarget | None:
    """Return a repository's cached target; None if there is none, or its KMS key is not open."""
    known = ctx.push_cache.find(name)
    if known is None or (known.writing is not None) != ctx.seals:
        return None
    if known.writing is None:
        return known
    assert ctx.data_keys is not None
    is_open = ctx.data_keys.opened_until(known.writing.usable) >= ctx.clock()
    return known if is_open else None


def find_upload_keys(
    ctx: ServiceContext, tx: Connection, upload: Upload, *, opens: bool = True
) -> UploadKeys:
    """Return the keys with which to continue an upload session.

    Without `opens`, the received bytes stay sealed, and their key is not looked up. Raise
    `KmsKeyDeleted` or `KmsKeyDisabled` if the KMS key that the repository writes under, or the one
    that seals the received bytes, cannot be used.
    """
    if not ctx.seals and upload.kms_key_id is None:
        return UploadKeys(None, None)
    writing = _find_writing_key(ctx, tx, upload.account_id, upload.repository_id)
    has_bytes = upload.received_bytes or upload.body is not None
    if upload.kms_key_id is None or not has_bytes or not opens:
        return UploadKeys(writing, None)
    assert ctx.data_keys is not None
    try:
        received = ctx.data_keys.usable_for(tx, upload.account_id, [_wrap_of(upload)])
    except WrapBroken:
        received = None
    return UploadKeys(writing, received)


async def new_seal(
    ctx: ServiceContext, account_id: str, writing: WritingKey | None, stored_id: str
) -> Seal | None:
    """Make a data key, wrapped under the KMS key `writing`; None if the bytes are stored plain.

    Raise `Unavailable` if the provider of the KMS key's material does not answer.
    """
    if writing is None:
        return None
    assert ctx.data_keys is not None
    data_key = ctx.data_keys.new(account_id)
    wrapped = ctx.data_keys.wrap_if_open(writing.usable, stored_id, data_key)
    if wrapped is None:
        wrapped = await _wrap(ctx, writing, stored_id, data_key)
    return Seal(writing.kms_key_id, data_key, wrapped)


async def open_seal(ctx: ServiceContext, upload: Upload, keys: UploadKeys | None) -> Seal | None:
    """Unwrap the data key that seals an upload's bytes; return None if the bytes are plain.

    Raise `ObjectUnknown` if the data key cannot be unwrapped, so that the bytes are lost;
    `Unavailable` if the provider of the KMS key's material does not answer.
    """
    if upload.kms_key_id is None:
        return None
    if ctx.data_keys is None or keys is None or keys.received is None:
        raise ObjectUnknown
    wrap = _wrap_of(upload)
    try:
        opened = await ctx.data_keys.open_under(upload.account_id, keys.received, [wrap])
    except WrapBroken:
        raise ObjectUnknown from None
    return Seal(wrap.kms_key_id, opened[0], wrap.wrapped)


async def seal_under(
    ctx: ServiceContext, writing: WritingKey | None, seal: Seal | None, stored_id: str
) -> Seal | None:
    """Return `seal` with its data key wrapped under the KMS key `writing`.

    Return `seal` itself if the data key is already wrapped under that key, or if `seal` or
    `writing` is None.
    """
    if seal is None or writing is None or seal.kms_key_id == writing.kms_key_id:
        return seal
    wrapped = await _wrap(ctx, writing, stored_id, seal.data_key)
    return Seal(writing.kms_key_id, seal.data_key, wrapped)


def key_of(seal: Seal | None) -> DataKey | None:
    """Return the data key to stage bytes with, or None if they are stored plain."""
    return None if seal is None else seal.data_key


def wrap_for_row(seal: Seal | None) -> UploadWrap | None:
    """Return the KMS key id and wrapped data key of a seal, for an upload session's row."""
    return None if seal is None else UploadWrap(seal.kms_key_id, seal.wrapped)


async def _wrap(
    ctx: ServiceContext, writing: WritingKey, stored_id: str, data_key: DataKey
) -> bytes:
    assert ctx.data_keys is not None
    return (await ctx.data_keys.wrap_under(writing.usable, [(stored_id, data_key)]))[0]


def _find(
    tx: Connection, ctx: ServiceContext, name: Name
) -> tuple[Repository, WritingKey | None, QuotaUse | None] | None:
    found = repositories.find_with_use(tx, name.handle, name.repository)
    if found is None:
        return None
    repository, use = found
    refuse_push(tx, repository)
    return repository, key_for(tx, ctx, repository), use


def key_for(tx: Connection, ctx: ServiceContext, repository: Repository) -> WritingKey | None:
    """Return the KMS key that a repository writes under, or None if blobs are stored plain.

    Raise `KmsKeyDeleted` if the key was deleted, `KmsKeyDisabled` if it is disabled or its deletion
    is pending.
    """
    if not ctx.seals:
        return None
    return _find_writing_key(ctx, tx, repository.account_id, repository.id)


def _wrap_of(upload: Upload) -> WrappedKey:
    assert upload.kms_key_id is not None
    assert upload.wrapped_data_key is not None
    return WrappedKey(upload.kms_key_id, upload.wrapped_data_key, upload.stage_id)
