"""A store that seals whatever is stored plain, so that tests of plain bytes run sealed too."""

from __future__ import annotations

from typing import Any, cast

from registry.blobstore.base import DataKey, OpenObject
from registry.blobstore.store import BlobStore, Staged


class SealingStore:
    """Give `key` to each call of `store` that has no data key; pass other calls on."""

    def __init__(self, store: BlobStore, key: DataKey) -> None:
        self.store = store
        self.key = key

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method of a store
        return getattr(self.store, name)

    async def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> OpenObject:
        """Open a sealed object."""
        return await self.store.open(object_id, size, data_key or self.key)

    async def open_staged(self, upload_id: str, data_key: DataKey | None = None) -> OpenObject:
        """Open sealed staged bytes."""
        return await self.store.open_staged(upload_id, data_key or self.key)

    async def stage(
        self,
        upload_id: str,
        data_key: DataKey | None,
        algorithm: str | None = None,
        *,
        is_fresh: bool = False,
    ) -> Staged:
        """Stage sealed bytes."""
        key = data_key or self.key
        staged = await self.store.stage(upload_id, key, algorithm, is_fresh=is_fresh)
        return self._sealing(staged)

    async def resume(self, upload_id: str) -> Staged:
        """Resume sealed bytes."""
        return self._sealing(await self.store.resume(upload_id))

    async def stage_copy(
        self,
        upload_id: str,
        source_id: str,
        size: int,
        *,
        data_key: DataKey | None,
        source_key: DataKey | None = None,
    ) -> Staged:
        """Copy sealed bytes under the same key."""
        staged = await self.store.stage_copy(
            upload_id,
            source_id,
            size,
            data_key=data_key or self.key,
            source_key=source_key or self.key,
        )
        return self._sealing(staged)

    async def resumable(self, upload_id: str, received: int, *, is_sealed: bool = True) -> int:
        """Return the offset at which sealed bytes can continue."""
        return await self.store.resumable(upload_id, received, is_sealed=is_sealed)

    def _sealing(self, staged: Staged) -> Staged:
        return cast("Staged", _SealingStaged(staged, self.key))


class _SealingStaged:
    def __init__(self, staged: Staged, key: DataKey) -> None:
        self._staged = staged
        self._key = key

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method of staged bytes
        return getattr(self._staged, name)

    async def rewind(self, *arguments: Any, data_key: DataKey | None) -> None:  # noqa: ANN401
        await self._staged.rewind(*arguments, data_key=data_key or self._key)
