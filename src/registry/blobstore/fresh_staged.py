"""Staged bytes of a new id, begun by the bulk thread that writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from registry.blobstore.base import DataKey, Stored
from registry.blobstore.blocking import BlockingStaged
from registry.oci.digest import Digest


class FreshStaged(BlockingStaged):
    """Call `stage` at the first write, flush or commit."""

    def __init__(self, stage: Callable[[], BlockingStaged]) -> None:
        self._stage = stage
        self._begun: BlockingStaged | None = None
        self._is_over = False

    def _begin(self) -> BlockingStaged:
        if self._begun is None:
            if self._is_over:
                raise ValueError("the staged bytes are not held any more")
            self._begun = self._stage()
        return self._begun

    @property
    def offset(self) -> int:
        """Return how many bytes are staged."""
        return 0 if self._begun is None else self._begun.offset

    @property
    def closes_slowly(self) -> bool:
        """Return True if `close` may block."""
        return self._begun is not None and self._begun.closes_slowly

    def rewinds_at_once(self, offset: int, *, is_sealed: bool = False) -> bool:
        """Return True if a `rewind` to `offset` cannot block."""
        begun = self._begun
        return begun is not None and begun.rewinds_at_once(offset, is_sealed=is_sealed)

    def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        data_key: DataKey | None = None,
    ) -> None:
        """See `Staged.rewind`."""
        self._begin().rewind(offset, digests, algorithm, data_key)

    def write(self, view: memoryview, /) -> None:
        """See `Staged.write`."""
        self._begin().write(view)

    def flush(self) -> Mapping[str, str]:
        """See `Staged.flush`."""
        return self._begin().flush()

    def commit(self, expected: Digest | None) -> Stored:
        """See `Staged.commit`."""
        return self._begin().commit(expected)

    def discard(self) -> None:
        """See `Staged.discard`."""
        self._is_over = True
        if self._begun is not None:
            self._begun.discard()

    def close(self) -> None:
        """See `Staged.close`."""
        self._is_over = True
        if self._begun is not None:
            self._begun.close()
