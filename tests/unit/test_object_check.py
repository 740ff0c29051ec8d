"""What the bytes of an object are found to be when the store cannot read them."""

from __future__ import annotations

import errno
import os

import pytest

from cloudcore.objects import damage
from cloudcore.objects.stored_rows import ObjectRow
from registry.blobstore.base import OpenObject
from registry.errors import StoreUnavailable
from registry.gc.object_check import Pace, inspect
from registry.oci.digest import digest_of
from tests.memory_store import MemoryStore

WHOLE = b"the bytes of a blob"


class Failing(MemoryStore):
    """Fails to open anything, as the system says by a number."""

    def __init__(self, cause: Exception | None) -> None:
        super().__init__()
        self._cause = cause

    async def open_stored(self, object_id: str, stored_size: int) -> OpenObject:
        raise StoreUnavailable("the blob store failed") from self._cause


@pytest.mark.parametrize(
    ("cause", "mark"),
    [
        (OSError(errno.EIO, os.strerror(errno.EIO)), damage.UNREADABLE),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), None),
        (TimeoutError(), None),
        (None, None),
    ],
)
async def test_only_an_error_of_the_disk_marks_bytes_as_damaged(
    cause: Exception | None, mark: str | None
) -> None:
    """A store without descriptors, or without an answer, says nothing of the bytes."""
    row = ObjectRow(
        id="an object",
        digest=digest_of(WHOLE),
        account_id="an account",
        stored_id="an object",
        stored_size=len(WHOLE),
        encoding="plain",
        is_inline=False,
        checksum=None,
        verified_at=0,
        damage=None,
        body=None,
    )
    state = await inspect(Failing(cause), row, Pace(), reads=True)
    assert (state.damage, state.is_verified) == (mark, False)
    assert state.problem == "its bytes cannot be read: the blob store failed"
