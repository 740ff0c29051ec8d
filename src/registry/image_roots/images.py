"""Pull images of this registry for instances on this machine (`RegistryImages`, a port of compute).

An image is pulled with the rights that a client would have. The trust policy of the pool's role
must admit instances, and the role's policies must allow container logins and pulls from the
repository, as for ``/v2/token`` and ``/v2``. Without a role, the rights are those of an
unauthenticated client. Pulls count as those of clients do, and fill cached repositories from their
upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from cloudcore.compute.images import ImageRefused, ImageRoot
from cloudcore.compute.instance_pool import SERVICE
from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, InvalidInput, NotFound, Unauthenticated
from cloudcore.iam.service_roles import service_crn
from cloudcore.identity.rights.role_trust import trusts_service
from cloudcore.identity.rows.accounts import Account, find_account
from cloudcore.identity.rows.roles import ROLES, AssumableRole, Role
from registry.errors import BlobUnknown, ManifestInvalid, NameUnknown, StoreUnavailable
from registry.image_roots.image_config import CONFIG_TYPES, choose_platform, find_user, read_image
from registry.image_roots.layer_store import LayerStore
from registry.metadata.images.manifests import StoredManifest
from registry.metadata.logins import Login
from registry.oci.digest import Digest, digest_of
from registry.oci.image_contents import MAX_CONFIGURATION_BYTES
from registry.oci.manifest import Manifest, parse_manifest
from registry.oci.reference import Name, parse_name, parse_reference
from registry.services.access.tokens import BearerTokens
from registry.services.blobs import reading
from registry.services.context import ServiceContext
from registry.services.pull_through.manifests import pull_manifest
from registry.services.pull_through.missing_blobs import FedBlob, get_missing_blob

_MOST_INDEXES: Final = 2
"""An index may list another index, which then lists the image."""


@dataclass(frozen=True, slots=True)
class RegistryImages:
    """The `Images` port, for images of the registry in the same process."""

    ctx: ServiceContext
    tokens: BearerTokens
    store: LayerStore
    hosts: frozenset[str]
    """The hosts under which clients reach this registry."""

    def check(self, reference: str) -> None:
        """Check a reference; see `Images`."""
        parse_image(reference, self.hosts)

    async def fetch(self, account_id: str, role_id: str | None, reference: str) -> ImageRoot:
        """Return an image, pulled in a role or, for None, without authentication; see `Images`."""
        image = parse_image(reference, self.hosts)
        pull = await begin_pull(self.ctx, self.tokens, account_id, role_id, image)
        stored, manifest = await _find_image(pull, image.reference)
        if manifest.config is None or manifest.config.media_type not in CONFIG_TYPES:
            raise ImageRefused("it is an artifact, and no image")
        configuration = await _read_small(pull, manifest.config.digest)
        read = read_image(manifest, configuration)
        layers = await self.store.unpack(account_id, stored.digest, read.layers, pull.blob)
        user = await asyncio.to_thread(find_user, read.user, layers)
        return ImageRoot(stored.digest, layers, read.config._replace(user=user))

    async def check_right(self, account_id: str, role_id: str | None, reference: str) -> None:
        """Check the right to pull an image; see `Images`."""
        image = parse_image(reference, self.hosts)
        await begin_pull(self.ctx, self.tokens, account_id, role_id, image)

    async def keep_only(self, digests: Iterable[str]) -> None:
        """Remove layers that no image needs; see `Images`."""
        await asyncio.to_thread(self.store.keep_only, digests)


async def _find_image(pull: Pull, reference: str | Digest) -> tuple[StoredManifest, Manifest]:
    """Return the image to which a reference leads, through indexes if necessary."""
    for _ in range(_MOST_INDEXES + 1):
        stored = await pull.manifest(reference)
        if len(stored.body) > MAX_CONFIGURATION_BYTES:  # parsing it would block other requests
            raise ImageRefused(f"its manifest has more than {MAX_CONFIGURATION_BYTES} bytes")
        try:
            manifest = parse_manifest(stored.body, stored.media_type, is_stored=True)
        except ManifestInvalid as error:
            raise ImageRefused(f"its manifest cannot be read: {error.message}") from None
        if not manifest.is_index:
            return stored, manifest
        reference = Digest.parse(choose_platform(stored.body))
    raise ImageRefused(f"it lies below more than {_MOST_INDEXES} indexes")


async def _read_small(pull: Pull, digest: str) -> bytes:
    """Return the verified bytes of a configuration; raise `ImageRefused` if large or wrong."""
    data = b""
    async with pull.blob(digest) as parts:
        async for part in parts:
            data += part
            if len(data) > MAX_CONFIGURATION_BYTES:
                raise ImageRefused(
                    f"its configuration has more than {MAX_CONFIGURATION_BYTES} bytes"
                )
    wanted = Digest.parse(digest)
    if digest_of(data, wanted.algorithm) != wanted:
        raise ImageRefused(f"the bytes of its configuration {digest} are others")
    return data


DEFAULT_TAG: Final = "latest"


class ImageReference(NamedTuple):
    """An image of this registry, as a pool refers to it."""

    handle: str
    """The handle of an account; empty for the pool's account."""
    repository: str
    reference: str | Digest


def parse_image(text: str, hosts: frozenset[str]) -> ImageReference:
    """Parse ``[host/][account/]repository[:tag][@digest]``.

    The account may be omitted only if the repository's name has no slashes. Raise `InvalidInput` if
    `text` is malformed, or has a host that is not one of `hosts`.
    """
    rest, at, digest = text.partition("@")
    first, slash, below = rest.partition("/")
    if slash and (first in hosts or "." in first or ":" in first):
        if first not in hosts:
            ours = " or ".join(sorted(hosts))
            raise InvalidInput(
                f"image is to be one of this registry, {ours}, and not of {first[:80]}"
            )
        rest = below
    path, colon, tag = rest.rpartition(":") if ":" in rest else (rest, "", DEFAULT_TAG)
    reference = parse_reference(tag) if not at else Digest.parse(digest)
    if at and colon:
        parse_reference(tag)
    if "/" not in path:
        return ImageReference("", parse_name(f"own/{path}").repository, reference)
    name = parse_name(path)
    return ImageReference(name.handle, name.repository, reference)


@dataclass(frozen=True, slots=True)
class Pull:
    """The right to pull from one repository, as it was when requested."""

    ctx: ServiceContext
    name: Name
    counts: bool
    """True if a pull by this role marks the image as used."""

    async def manifest(self, reference: str | Digest) -> StoredManifest:
        """Return a manifest, and record the pull.

        Raise `ImageRefused` if there is no such manifest or its KMS key cannot be used,
        `Unavailable` if it cannot be read now.
        """
        try:
            found = await pull_manifest(self.ctx, self.name, reference)
        except (NotFound, AccessDenied) as error:  # denied: a KMS key may not be used
            raise ImageRefused(f"{self.name} has no image {reference}: {error.message}") from None
        if self.counts:
            self.ctx.pulls.note(found.id)
        return found

    @asynccontextmanager
    async def blob(self, digest: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a blob of the repository; yield an iterator over the blob's bytes.

        Raise `ImageRefused` if the repository has no such blob, or the blob is damaged;
        `Unavailable` if it cannot be read now.
        """
        ctx, name, wanted = self.ctx, self.name, Digest.parse(digest)
        found: reading.FoundBlob | FedBlob
        try:
            try:
                found = await reading.stat_blob(ctx, name, wanted)
            except (BlobUnknown, NameUnknown) as missing:
                if ctx.upstream is None:
                    raise
                found = await get_missing_blob(ctx, name, wanted, missing)
            if isinstance(found, FedBlob):
                opened, of, size = found.blob, found.repository_id, found.size
            else:
                opened = await reading.open_blob(ctx, name, found)
                of, size = found.link.repository_id, found.link.size
        except (NotFound, AccessDenied) as error:
            raise ImageRefused(f"a blob of the image cannot be read: {error.message}") from None
        ctx.pulls.cache.served(of, size)
        async with aclosing(opened):
            try:
                yield opened.stream(0, size)
            except StoreUnavailable as error:
                if not isinstance(found, FedBlob):
                    await reading.check_after_failure(ctx, name, found, error)
                raise


async def begin_pull(
    ctx: ServiceContext,
    tokens: BearerTokens,
    account_id: str,
    role_id: str | None,
    image: ImageReference,
) -> Pull:
    """Return the right to pull an image in a role of an account; for None, without authentication.

    Raise `ImageRefused` if the account is suspended or deleted, or if the role was deleted or may
    not pull the image.
    """
    account, role = await ctx.database.read(_find_caller, account_id, role_id)
    if account is None or account.status != "active" or (role_id is not None and role is None):
        raise ImageRefused("the account is suspended, or the role of the pool is gone")
    if role is not None and not trusts_service(_assumable(account, role), SERVICE, ctx.clock()):
        raise ImageRefused(f"the trust policy of {role.name} does not allow {service_crn(SERVICE)}")
    name = Name(image.handle or account.handle, image.repository)
    login = None if role is None else _login(account, role, ctx.clock())
    try:
        entry = await tokens.rights_of(login, name)
    except Unauthenticated:
        raise ImageRefused(
            f"the role {role and role.name} may not log container clients in: it needs"
            " registry:GetAuthorizationToken"
        ) from None
    except AccessDenied as error:
        raise ImageRefused(error.message) from None
    if "pull" not in entry.granted:
        who = "everybody, and the pool has no role" if role is None else f"the role {role.name}"
        raise ImageRefused(f"registry:PullImage on {name} is not allowed to {who}")
    return Pull(ctx, name, entry.counts_pulls)


def _find_caller(
    tx: Connection, account_id: str, role_id: str | None
) -> tuple[Account | None, Role | None]:
    """Return an account and its role; either is None if missing."""
    role = None if role_id is None else ROLES.find(tx, account_id, role_id)
    return find_account(tx, account_id), role


def _assumable(account: Account, role: Role) -> AssumableRole:
    of_role = role.id, role.name, role.trust_policy, role.trust_ids, role.max_session_seconds
    return AssumableRole(*of_role, account.id, account.handle, account.status)


def _login(account: Account, role: Role, now: int) -> Login:
    """Return a temporary login as the role, used only to evaluate its rights."""
    return Login(
        id="",
        account_id=account.id,
        handle=account.handle,
        expires_at=now,
        service_account_id=None,
        service_account=None,
        sid=None,
        role_id=role.id,
        role=role.name,
    )
