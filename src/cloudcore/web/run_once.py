"""Run an action once for all workers that request it at the same time.

The first runs it; its outcome is stored sealed for 24 hours and returned to the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.keyring import Keyring
from cloudcore.web import idempotency

_LOOKS: Final = 100
_PAUSE_SECONDS: Final = 0.05


class RunOnce:
    """Runs each action once and stores its outcome in the database."""

    def __init__(
        self, database: Database, keyring: Keyring, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._database = database
        self._keyring = keyring
        self._clock = clock
        self._new_id = new_id

    async def __call__(
        self, principal: str, operation: str, key: str, action: Callable[[], Awaitable[bytes]]
    ) -> bytes | None:
        """Run `action`, or wait for the worker that runs it; return its outcome, or None after 5 s.

        An action that raises has no outcome; the next request runs it again.
        """
        scope = idempotency.Scope(principal, operation, key)
        claim = idempotency.Claim(scope, key, self._new_id())
        for _ in range(_LOOKS):
            try:
                sealed = await self._database.write_relaxed(idempotency.begin, claim, self._clock())
                break
            except idempotency.InProgress:
                await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return None
        if sealed is not None:
            return idempotency.Outcome.open(sealed, self._keyring, scope).body
        try:
            body = await action()
        except BaseException:
            await self._database.write_relaxed(idempotency.release, claim)
            raise
        outcome = idempotency.Outcome(200, "", None, body, ())
        sealed = outcome.seal(self._keyring, scope)
        await self._database.write(idempotency.complete, claim, 200, sealed)
        return body
