"""Write and renew the files that the metadata service of an instance serves.

An instance whose pool has a role has a session of that role, named after the instance: an access
token and a key pair that expire together, as ``POST /v1/assume-role`` issues them. The session is
replaced halfway through its life, so that a shorter downtime of the install has no effect. It is
also replaced after it was revoked (the role's trust policy changed), and when the pool got another
role. The secrets are in a file of mode 0600 in the instance's folder, and nowhere else in plain
text.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from cloudcore.compute.metadata_server import CREDENTIALS_FILE, INSTANCE_FILE
from cloudcore.db.base import Connection, Database
from cloudcore.iam.service_roles import RoleRefused, RoleSession, ServiceRoles
from cloudcore.wire import rfc3339

SESSION_SECONDS: Final = 3600
"""The life of a session; the role must allow as much."""
_NEW: Final = ".new"
_MOST_BYTES: Final = 16 * 1024
"""The most bytes of a file; a typical file has a tenth."""


class RunningInstance(NamedTuple):
    """An instance that runs on this machine, with its folder and its role."""

    id: str
    account_id: str
    folder: Path
    role_id: str | None


class InstanceIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity document of an instance."""

    id: str
    pool_id: str
    pool_name: str
    account_id: str
    account_handle: str
    region: str
    node: str
    address_ipv4: str | None
    address_ipv6: str | None
    url: str
    """Base URL of ``/v1``."""


class _StoredSession(msgspec.Struct):
    """The session of an instance, without its secrets."""

    session_id: str
    role_id: str
    renews_at: int
    """Microseconds since the epoch."""


class _Credentials(_StoredSession):
    """The content of the credentials file, parts of which the metadata service shows."""

    access_token: str
    access_key_id: str
    secret_access_key: str
    session_token: str
    expires_at: str
    account_id: str
    account_handle: str


def write_identity(folder: Path, identity: InstanceIdentity) -> None:
    """Atomically write the identity document that the metadata service serves to an instance."""
    _begin(folder / INSTANCE_FILE)
    _finish(folder / INSTANCE_FILE, identity)


async def renew(
    database: Database,
    roles: ServiceRoles,
    instances: Sequence[RunningInstance],
    is_wanted: Callable[[Connection, RunningInstance], bool],
    now: int,
) -> Mapping[str, str]:
    """Make sure that each instance of this machine has valid credentials of its role.

    Map the id of each instance that could not get credentials to the reason; its previous ones, if
    any, were revoked or will expire. If all credentials are valid, this only reads their files and
    queries the database once. `is_wanted` returns False for an instance that is being deleted;
    otherwise it locks the instance's row.
    """
    held = await asyncio.to_thread(lambda: {each.id: _read(each.folder) for each in instances})
    sids = [each.session_id for each in held.values() if each is not None]
    live = await roles.live(sids) if sids else ()
    problems: dict[str, str] = {}
    for each in instances:
        has = held[each.id]
        if has is not None and has.role_id != each.role_id:
            await _take(database, roles, each, now)
            has = None
        if each.role_id is None or (has and has.session_id in live and now < has.renews_at):
            continue
        try:
            await _give(roles, each, each.role_id, is_wanted)
        except RoleRefused as refused:
            problems[each.id] = str(refused)
            unfinished = (each.folder / CREDENTIALS_FILE).with_suffix(_NEW)
            await asyncio.to_thread(unfinished.unlink, missing_ok=True)
        except OSError as error:
            problems[each.id] = f"its credentials cannot be written: {error.strerror or error}"
    return problems


async def _give(
    roles: ServiceRoles,
    instance: RunningInstance,
    role_id: str,
    is_wanted: Callable[[Connection, RunningInstance], bool],
) -> None:
    of = instance.account_id, role_id, instance.id, SESSION_SECONDS
    path = instance.folder / CREDENTIALS_FILE
    try:
        await asyncio.to_thread(_begin, path)  # first: on a full disk, no session is begun
        session = await roles.begin(*of, is_wanted=lambda tx: is_wanted(tx, instance))
        await asyncio.to_thread(_finish, path, _credentials(session))
    except FileNotFoundError:
        return  # the instance was removed meanwhile, which also ends the session


async def _take(
    database: Database, roles: ServiceRoles, instance: RunningInstance, now: int
) -> None:
    """End the sessions of an instance whose role was changed, and delete its credentials."""
    await database.write(roles.end, instance.account_id, instance.id, now)
    await asyncio.to_thread((instance.folder / CREDENTIALS_FILE).unlink, missing_ok=True)


def _credentials(session: RoleSession) -> _Credentials:
    return _Credentials(
        session_id=session.id,
        renews_at=session.began_at + (session.expires_at - session.began_at) // 2,
        access_token=session.access_token,
        access_key_id=session.access_key_id,
        secret_access_key=session.secret_access_key,
        session_token=session.session_token,
        expires_at=rfc3339(session.expires_at),
        account_id=session.account_id,
        account_handle=session.account_handle,
        role_id=session.role_id,
    )


def _read(folder: Path) -> _StoredSession | None:
    """Return an instance's session, or None if it has none or the file is unreadable."""
    try:
        return msgspec.json.decode((folder / CREDENTIALS_FILE).read_bytes(), type=_StoredSession)
    except (OSError, msgspec.DecodeError):
        return None


def _begin(path: Path) -> None:
    """Create the replacement of a file, readable only by its owner; reserve disk space for it."""
    made = path.with_suffix(_NEW)
    made.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(made, flags, 0o600)
    try:
        os.posix_fallocate(file, 0, _MOST_BYTES)
    finally:
        os.close(file)


def _finish(path: Path, value: msgspec.Struct) -> None:
    """Write the replacement, and rename it to `path`."""
    made = path.with_suffix(_NEW)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "wb") as file:
        file.truncate(file.write(msgspec.json.encode(value)))
    made.replace(path)
