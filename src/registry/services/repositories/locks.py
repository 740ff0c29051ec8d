"""Lock a repository until the end of the transaction, as every change of its content does first."""

from __future__ import annotations

from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from registry.errors import ManifestUnknown
from registry.metadata.repositories.live import Repository, VisibleRepository, lock_repository
from registry.oci.reference import Name
from registry.services.repositories.names import get_named_repository, name_unknown


def lock_named_repository(tx: Connection, name: Name) -> Repository:
    """Lock the repository of this name, and return it.

    Raises:
        NameUnknown: there is no such repository.

    """
    return lock_known_repository(tx, name, get_named_repository(tx, name).id)


def lock_known_repository(tx: Connection, name: Name, repository_id: str) -> Repository:
    """Lock the repository that had this name when it was read, and return it.

    Raises:
        NameUnknown: it was deleted meanwhile.

    """
    found = lock_repository(tx, repository_id)
    if found is None:
        raise name_unknown(name)
    return found


def lock_existing_repository(tx: Connection, repository_id: str) -> Repository:
    """Lock the repository with this id, and return it.

    Raises:
        NotFound: there is no such repository, or it was deleted meanwhile.

    """
    found = lock_repository(tx, repository_id)
    if found is None:
        raise NotFound("there is no such repository")
    return found


def lock_visible_repository(tx: Connection, found: VisibleRepository) -> Repository:
    """Lock the repository on which a caller of ``/v1`` was authorized, and return it.

    Raises:
        ManifestUnknown: it was deleted meanwhile.

    """
    repository = lock_repository(tx, found.repository.id)
    if repository is None:
        raise ManifestUnknown("there is no such repository")
    return repository
