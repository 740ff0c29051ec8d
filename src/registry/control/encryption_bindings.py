"""``/v1/encryption-binding``, and that of a repository: the KMS key that seals new blobs.

Runs of ``…/encryption-binding/rewrap`` move the blobs of a repository to its key.
``/v1/key-usage/{key_id}`` lists the blobs, images, repositories and buckets under a key; it is not
part of ``/v1/keys``, since the family of keys knows nothing of the registry.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from litestar.params import FromPath, JSONBody
from msgspec import UNSET, UnsetType

from cloudcore.resource_names import Uuid
from cloudcore.web.answers import RecordAnswers, answer_of, deletes
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import KeyReference, ResourceRef, reference_to
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageQuery, read_page
from cloudcore.wire import RFC3339, RequestBody, ResponseBody
from registry.control.bodies import RunAnswers, RunRecord
from registry.control.repositories import (
    GivenKey,
    authorized_for_all,
    authorized_repository,
    key_to_bind_to,
    reference_of,
)
from registry.control.visible_repositories import PATH, change_of
from registry.metadata import encryption_bindings as rows
from registry.metadata.repositories.details import RepositoryDetails
from registry.services.blobs.rewrapping import KIND, start_rewrap
from registry.services.context import ServiceContext
from registry.services.encryption_bindings import (
    BindingStatus,
    KeyToBind,
    KeyUsageAnswer,
    bind_key,
    effective_binding,
    key_usage,
    status_of,
    unbind,
)

_DEFAULT: Final = "/v1/encryption-binding"
_OF_REPOSITORY: Final = f"{PATH}/encryption-binding"


class PutBinding(RequestBody):
    """The key to bind."""

    kms_key: GivenKey


class EncryptionBinding(ResponseBody):
    """What binds an account or a repository to a key."""

    id: Uuid | None
    """Null for the platform key, which nobody has bound."""
    source: rows.BindingSource
    """`repository` if the repository itself is bound, `account` if the account's default applies,
    `platform` if neither is bound."""
    repository: ResourceRef | None
    """Null unless `source` is `repository`."""
    status: BindingStatus
    """`key_disabled`: blobs can be neither read nor written until the key is enabled, or the
    deletion that is pending is cancelled; `key_deleted`: what only this key opened is gone;
    `ended`: replaced or deleted."""
    created_at: RFC3339 | None
    ended_at: RFC3339 | None
    kms_key: KeyReference | UnsetType = UNSET
    """Absent only in an install without keys, where nothing is encrypted."""


def _binding(
    ctx: RequestContext, repository: RepositoryDetails | None, found: rows.Binding
) -> EncryptionBinding:
    of = repository if found.repository_id else None
    return answer_of(
        EncryptionBinding,
        found,
        repository=of and reference_of(ctx, of.account_id, of.id, of.name),
        kms_key=reference_to(found.key) if found.key else UNSET,
        status=status_of(found.key.state, found.ended_at) if found.key else "active",
    )


_BINDING: Final = RecordAnswers(
    EncryptionBinding, "encryption_binding", _binding, noun="binding", named="Binding"
)


@_BINDING.gets(_DEFAULT, "registry:GetEncryptionBinding")
async def get_encryption_binding(ctx: Context) -> ResponseBody:
    """Return the account's default key, or else the platform key.

    It seals pushes to repositories without a key of their own.
    """
    account_id = authorized_for_all(ctx)
    return _BINDING.one(ctx, None, await ctx.database.read(effective_binding, account_id, None))


@_BINDING.puts(_DEFAULT, "registry:PutEncryptionBinding", statuses=(404,))
async def put_encryption_binding(
    data: JSONBody[PutBinding], ctx: Context, needs: Needs[ServiceContext]
) -> Reply[ResponseBody]:
    """Set the account's default key.

    It seals later pushes to repositories without a key of their own. Needs `kms:UseKey` on the key,
    and the action on all repositories of the account.
    """
    account_id = authorized_for_all(ctx)
    new = await key_to_bind_to(ctx, data.kms_key, seals=needs.seals)
    return await _bind(ctx, account_id, None, new)


@deletes(_DEFAULT, "registry:DeleteEncryptionBinding", statuses=(404,))
async def delete_encryption_binding(ctx: Context) -> None:
    """Unbind the account's default key: the platform key seals later pushes in its place."""
    await ctx.database.write(unbind, authorized_for_all(ctx), None, ctx.clock())


@_BINDING.lists(f"{_DEFAULT}s", "registry:GetEncryptionBinding")
async def list_encryption_bindings(ctx: Context) -> ResponseBody:
    """List what the account's default was bound to, newest first; ended bindings too."""
    return await _history(ctx, authorized_for_all(ctx), None)


@_BINDING.gets(_OF_REPOSITORY, "registry:GetEncryptionBinding")
async def get_repository_encryption_binding(
    repository_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return the key that seals what is pushed to a repository, and what binds it."""
    found = await authorized_repository(ctx, repository_id)
    effective = await ctx.database.read(effective_binding, found.account_id, found.id)
    return _BINDING.one(ctx, found, effective)


@_BINDING.puts(_OF_REPOSITORY, "registry:PutEncryptionBinding")
async def put_repository_encryption_binding(
    repository_id: FromPath[str],
    data: JSONBody[PutBinding],
    ctx: Context,
    needs: Needs[ServiceContext],
) -> Reply[ResponseBody]:
    """Bind a repository to a key, for later pushes; what it holds stays under its earlier key.

    Needs `kms:UseKey` on the key. A disabled key is refused; so is one that is not `aes-256`.
    """
    found = await authorized_repository(ctx, repository_id)
    new = await key_to_bind_to(ctx, data.kms_key, seals=needs.seals)
    return await _bind(ctx, found.account_id, found, new)


@deletes(_OF_REPOSITORY, "registry:DeleteEncryptionBinding")
async def delete_repository_encryption_binding(repository_id: FromPath[str], ctx: Context) -> None:
    """Unbind a repository's key: the account's default or the platform key seals later pushes."""
    found = await authorized_repository(ctx, repository_id)
    await ctx.database.write(unbind, found.account_id, found.id, ctx.clock())


@_BINDING.lists(f"{_OF_REPOSITORY}s", "registry:GetEncryptionBinding")
async def list_repository_encryption_bindings(
    repository_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """List what a repository itself was bound to, newest first; ended bindings too."""
    found = await authorized_repository(ctx, repository_id)
    return await _history(ctx, found.account_id, found)


async def _bind(
    ctx: RequestContext, account_id: str, repository: RepositoryDetails | None, new: KeyToBind
) -> Reply[ResponseBody]:
    return await ctx.commit(
        bind_key,
        account_id,
        repository and repository.id,
        new,
        ctx.clock(),
        wrap=partial(_BINDING.one, ctx, repository),
        details=lambda bound: (
            {"kms_key_id": bound.key and bound.key.id} if bound.is_changed else None
        ),
    )


async def _history(
    ctx: RequestContext, account_id: str, repository: RepositoryDetails | None
) -> ResponseBody:
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        rows.list_bindings,
        rows.count_bindings,
        account_id,
        repository and repository.id,
        key=lambda each: each.id or "",
    )
    return _BINDING.many([_binding(ctx, repository, each) for each in found], meta)


_PATH: Final = f"{PATH}/encryption-binding/rewrap"


class RewrapRun(RunRecord):
    """A run that moves the blobs of a repository to the repository's current key.

    It counts the repository's links to blobs, and the blobs of its deleted images.
    """

    started_by: str
    """CRN of the principal that started it."""
    total: int | None
    """Blobs that had another key; null until they are counted."""
    done: int
    """Blobs it has looked at."""
    moved: int
    """Blobs that are read through the repository's key now."""
    plain: int
    """Blobs that are stored plain, and so have no key."""
    key_disabled: int
    """Blobs that stayed, since their key is disabled or its deletion is pending."""
    key_deleted: int
    """Blobs that stayed, since their key was deleted."""
    unreadable: int
    """Blobs whose data key no key opens; push them again."""


_RUN: Final = RunAnswers(RewrapRun, KIND)


@_RUN.changes(_PATH, "registry:RewrapRepository", status=202, statuses=(409,))
async def start_rewrap_run(
    repository_id: FromPath[str], ctx: Context, needs: Needs[ServiceContext]
) -> Reply[ResponseBody]:
    """Move all blobs of a repository to its key; if a run is under way, return that one."""
    repository = await authorized_repository(ctx, repository_id)
    return await ctx.commit(
        partial(start_rewrap, has_keys=needs.data_keys is not None),
        repository.id,
        ctx.new_id(),
        change_of(ctx),
        wrap=_RUN.one,
        location=lambda run: (
            f"/v1/repositories/{repository.id}/encryption-binding/rewrap/runs/{run.id}"
        ),
    )


@_RUN.lists(f"{_PATH}/runs", "registry:GetEncryptionBinding")
async def list_rewrap_runs(repository_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List the runs that moved a repository's blobs to its key, newest first."""
    return await _RUN.page(ctx, (await authorized_repository(ctx, repository_id)).id)


@_RUN.gets(f"{_PATH}/runs/{{run_id:str}}", "registry:GetEncryptionBinding")
async def get_rewrap_run(
    repository_id: FromPath[str], run_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return a run that moves a repository's blobs to its key: its progress or its outcome."""
    return await _RUN.get(ctx, (await authorized_repository(ctx, repository_id)).id, run_id)


_KEY_USAGE: Final = RecordAnswers(KeyUsageAnswer, "key_usage", KeyUsageAnswer)


@_KEY_USAGE.gets("/v1/key-usage/{key_id:str}", "registry:DescribeKeyUsage")
async def get_key_usage(key_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return which blobs, images and objects a key protects: what its deletion would shred."""
    account_id, region = authorized_for_all(ctx), ctx.settings.region
    return _KEY_USAGE.wrapped(await ctx.database.read(key_usage, account_id, region, key_id))
