"""``/v1/repositories``: create, list, show, change and delete repositories."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType, field

from cloudcore.errors import AccessDenied, InvalidInput
from cloudcore.identity.rights.own_rights import RightsRequest, allowed_prefixes
from cloudcore.identity.rows.accounts import find_account
from cloudcore.kms.rows import bindable_key
from cloudcore.resource_names import Crn, Uuid, check_tags
from cloudcore.resource_references import Scope
from cloudcore.web.answers import RecordAnswers, answer_of, deletes
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import KeyReference, ResourceRef, reference_to
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageQuery, read_page
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, changes_of
from registry.control.visible_repositories import PATH, change_of
from registry.metadata.encryption_bindings import BindingSource
from registry.metadata.repositories import details as rows
from registry.metadata.repositories.repository import NewRepository
from registry.services.access.decisions import repository_crn, repository_reference
from registry.services.context import ServiceContext
from registry.services.encryption_bindings import KeyToBind
from registry.services.repositories import details as repository_details

_USE: Final = "kms:UseKey"
"""The action that a caller needs on a key to bind a repository or an account to the key."""

GivenKey = Annotated[
    str, Meta(max_length=512, description="The id, the name or the CRN of an `aes-256` key.")
]


async def key_to_bind_to(ctx: RequestContext, value: str, *, seals: bool) -> KeyToBind:
    """Return the key that `value` names, if the caller may use it.

    `seals` is True if this registry encrypts new blobs.

    Raises:
        InvalidInput: `value` is malformed, the CRN of another account, or a key that cannot seal
            blobs now; or this registry seals nothing.
        AccessDenied: the caller may not use the key (`kms:UseKey`).
        KeyMissing: the account has no such key.

    """
    if not seals:
        raise InvalidInput(
            "kms_key: this registry does not encrypt new blobs (ENTREPOT_SEALING is off)",
            field="kms_key",
            reason="sealing_disabled",
        )
    scope = Scope(account_of(ctx), ctx.settings.region)
    key = await ctx.database.read(bindable_key, scope, value, ctx.right_to(_USE))
    return KeyToBind(key.id, ctx.new_id())


RepositoryName = Annotated[str, Meta(min_length=1, max_length=210)]
"""A name without the account's handle; may be nested, as ``team/app``."""
Description = Annotated[str, Meta(max_length=1000)]
Mutability = Literal["mutable", "immutable"]
Visibility = Literal["private", "shared", "public"]
Source = Literal["user", "push", "pull_through_cache"]


_MOST_PREFIXES: Final = 10


class CreateRepository(RequestBody):
    """A new repository."""

    name: RepositoryName
    description: Description | None = None
    tags: dict[str, str] = field(default_factory=dict)
    tag_mutability: Mutability = "mutable"
    immutable_tag_exclusions: list[str] = field(default_factory=list)
    kms_key: GivenKey | None = None
    """Seals its blobs; without one, the account's default does, or else the platform key."""


class UpdateRepository(RequestBody):
    """The fields to change; a repository's name is fixed."""

    description: Description | UnsetType | None = UNSET
    tags: dict[str, str] | UnsetType | None = UNSET
    tag_mutability: Mutability | UnsetType | None = UNSET
    immutable_tag_exclusions: list[str] | UnsetType | None = UNSET


class RepositoryQuery(PageQuery):
    """The filter of a list of repositories."""

    name: str | None = None
    name_prefix: str | None = None


class DeleteQuery(msgspec.Struct):
    """Options of a deletion."""

    force: bool = False
    """Delete the repository even if it holds images, and delete these too."""


class Encryption(ResponseBody):
    """How a repository's blobs are encrypted at rest."""

    source: BindingSource
    """What binds the repository to the key: itself, its account, or neither."""
    has_plain_blobs: bool
    """True if some of its blobs lie unencrypted: they were pushed while sealing was off."""
    kms_key: KeyReference | UnsetType = UNSET
    """The key that seals what is pushed from now on; absent only in an install without keys."""


class RepositoryAnswer(ResponseBody):
    """A repository."""

    id: Uuid
    crn: str
    name: str
    uri: str
    """Host, account handle and name: an image reference without a tag."""
    description: str | None
    tags: dict[str, str]
    tag_mutability: Mutability
    immutable_tag_exclusions: list[str]
    visibility: Visibility
    """Whom its policy admits besides its account: nobody, some principals, or everyone."""
    encryption: Encryption
    source: Source
    image_count: int
    tag_count: int
    size_bytes: int
    last_pushed_at: RFC3339 | None
    last_pulled_at: RFC3339 | None
    """The last pull of the images it holds now, to the minute."""
    created_at: RFC3339
    updated_at: RFC3339


def crn_of_repository(ctx: RequestContext, repository: rows.RepositoryDetails) -> str:
    """Return the CRN of a repository."""
    return repository_crn(ctx.settings.region, repository.account_id, repository.name)


def reference_of(
    ctx: RequestContext, account_id: str, repository_id: str, name: str
) -> ResourceRef:
    """Return the reference to a repository of an account, for a response."""
    return repository_reference(ctx.settings.region, account_id, repository_id, name)


def authorized_for_all(ctx: RequestContext) -> str:
    """Return the caller's account id; raise `AccessDenied` unless all repositories are allowed."""
    account_id = account_of(ctx)
    ctx.authorize(repository_crn(ctx.settings.region, account_id, "*"))
    return account_id


def uri_of(ctx: RequestContext, handle: str, name: str) -> str:
    """Return the image reference of a repository without a tag: host, account handle and name."""
    return f"{ctx.settings.host}/{handle}/{name}"


async def authorized_repository(ctx: RequestContext, repository_id: str) -> rows.RepositoryDetails:
    """Return a repository of the caller's account; raise `AccessDenied` if policies refuse."""
    found = await ctx.database.read(
        repository_details.get_repository, account_of(ctx), repository_id
    )
    ctx.authorize(crn_of_repository(ctx, found))
    return found


def _answer(ctx: RequestContext, found: rows.RepositoryDetails) -> RepositoryAnswer:
    return answer_of(
        RepositoryAnswer,
        found,
        crn=crn_of_repository(ctx, found),
        uri=uri_of(ctx, found.handle, found.name),
        encryption=Encryption(
            source=found.key_source,
            kms_key=reference_to(found.key) if found.key else UNSET,
            has_plain_blobs=found.has_plain_blobs,
        ),
    )


REPOSITORIES: Final = RecordAnswers(RepositoryAnswer, "repository", _answer)


@REPOSITORIES.creates("/v1/repositories", "registry:CreateRepository", statuses=(404, 409))
async def create_repository(
    data: JSONBody[CreateRepository], ctx: Context, needs: Needs[ServiceContext]
) -> Reply[ResponseBody]:
    """Create a repository; a `kms_key` needs `kms:UseKey` on that key."""
    account_id = account_of(ctx)
    account = await ctx.database.read(find_account, account_id)
    assert account is not None
    new = NewRepository(**{name: getattr(data, name) for name in NewRepository._fields})
    repository_details.check_repository(account.handle, new)
    ctx.authorize(repository_crn(ctx.settings.region, account_id, new.name))
    key = None
    if data.kms_key is not None:
        key = await key_to_bind_to(ctx, data.kms_key, seals=needs.seals)
    return await ctx.commit(
        repository_details.create_repository,
        account_id,
        ctx.new_id(),
        new,
        change_of(ctx),
        key,
        wrap=partial(REPOSITORIES.one, ctx),
        location=lambda found: f"/v1/repositories/{found.id}",
    )


@REPOSITORIES.lists("/v1/repositories", "registry:DescribeRepositories", RepositoryQuery)
async def list_repositories(ctx: Context) -> ResponseBody:
    """List the account's repositories by name."""
    account_id = account_of(ctx)
    query = ctx.query(RepositoryQuery)
    repository_details.check_filters(query.name, query.name_prefix)
    names = rows.NameRange.of(query.name, query.name_prefix)
    pattern = query.name or f"{query.name_prefix or ''}*"
    _authorize_list(ctx, repository_crn(ctx.settings.region, account_id, pattern))
    found, meta = await read_page(
        ctx,
        query,
        rows.list_repository_details,
        rows.count_repository_details,
        account_id,
        names,
        key=lambda each: each.name,
    )
    return REPOSITORIES.many([_answer(ctx, each) for each in found], meta)


def _authorize_list(ctx: RequestContext, crn: str) -> None:
    """Check that the caller may list the repositories matching the pattern `crn`.

    Raise `AccessDenied` if not. If the caller may list some repositories, the error has the name
    prefixes that the policies allow, as `name_prefixes`.
    """
    try:
        ctx.authorize(crn)
    except AccessDenied as error:
        if ctx.caller is None or ctx.action is None or not ctx.allowed_somewhere:
            raise
        asking = RightsRequest(ctx.caller, ctx.policies, ctx.source_ip, ctx.clock())
        prefixes = allowed_prefixes(asking, ctx.action, Crn.parse(crn))[:_MOST_PREFIXES]
        if not prefixes:
            raise
        words = (
            "you may not list all of these repositories; ask for those whose names begin with "
            f"{' or '.join(prefixes)} (name_prefix)"
        )
        raise AccessDenied(words, name_prefixes=prefixes) from error


@REPOSITORIES.gets(PATH, "registry:DescribeRepositories")
async def get_repository(repository_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a repository."""
    return REPOSITORIES.one(ctx, await authorized_repository(ctx, repository_id))


@REPOSITORIES.updates(PATH, "registry:UpdateRepository")
async def update_repository(
    repository_id: FromPath[str], data: JSONBody[UpdateRepository], ctx: Context
) -> Reply[ResponseBody]:
    """Change a repository; each field in the request is replaced whole, and null removes it."""
    found = await authorized_repository(ctx, repository_id)
    changes = changes_of(data, CreateRepository)
    check_tags(changes.get("tags", {}))
    repository_details.check_exclusions(changes.get("immutable_tag_exclusions", ()))
    return await ctx.commit(
        repository_details.update_repository,
        found.account_id,
        found.id,
        changes,
        ctx.clock(),
        wrap=partial(REPOSITORIES.one, ctx),
    )


@deletes(PATH, "registry:DeleteRepository", query=DeleteQuery, statuses=(409,))
async def delete_repository(repository_id: FromPath[str], ctx: Context) -> None:
    """Delete a repository, restorable for `undelete_days`; its name is free at once."""
    found = await authorized_repository(ctx, repository_id)
    await ctx.database.write(
        repository_details.delete_repository,
        found.account_id,
        found.id,
        change_of(ctx),
        force=ctx.query(DeleteQuery).force,
    )
