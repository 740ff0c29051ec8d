"""Ids of upload sessions: UUIDs that only their install makes, and for one repository."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import pytest

from registry.oci.digest import ALGORITHMS
from registry.services.blobs.upload_ids import RepositoryIds, UploadIds, started_at

NOW: Final = 1_750_000_000_123_456
HERE: Final = RepositoryIds("a repository", "an account")
IDS: Final = UploadIds(b"a key")


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
def test_an_id_says_when_and_for_which_algorithm(algorithm: str | None) -> None:
    made = IDS.new(HERE, algorithm, NOW)
    assert (UUID(made).version, str(UUID(made))) == (7, made)
    given = IDS.read(made, HERE)
    assert given is not None
    assert (given.algorithm, given.started_at) == (algorithm, NOW // 1000 * 1000)
    assert started_at(made) == given.started_at


def test_ids_differ() -> None:
    assert len({IDS.new(HERE, None, NOW) for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("ids", "place"),
    [
        (UploadIds(b"another key"), HERE),
        (IDS, HERE._replace(repository_id="another")),
        (IDS, HERE._replace(account_id="another")),
    ],
)
def test_an_id_of_elsewhere_is_none(ids: UploadIds, place: RepositoryIds) -> None:
    assert ids.read(IDS.new(HERE, None, NOW), place) is None


def test_a_changed_id_is_none() -> None:
    made = UUID(IDS.new(HERE, None, NOW)).int
    for bit in range(128):
        assert IDS.read(str(UUID(int=made ^ 1 << bit)), HERE) is None
