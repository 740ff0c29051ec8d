"""Look up host names, each in its own thread.

The system's call cannot be cancelled. In a pool, such as the event loop's with four threads, the
first names whose servers do not answer would block all other lookups.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Final

from cloudcore.outbound.destinations import Address

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Returns the addresses of a host; raises OSError."""

MOST_AT_ONCE: Final = 512
"""Maximum number of look-ups under way in a process."""
_Found = asyncio.Future[Sequence[Address]]
_Key = tuple[asyncio.AbstractEventLoop, str, int]
_under_way: Final[dict[_Key, _Found]] = {}


async def resolve(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host; concurrent callers share a look-up.

    Raise `OSError` if there are none, `MOST_AT_ONCE` look-ups are under way, or no thread starts.
    """
    loop = asyncio.get_running_loop()
    key = (loop, host, port)
    found = _under_way.get(key)
    if found is None:
        if len(_under_way) >= MOST_AT_ONCE:
            raise BlockingIOError("too many names are looked up")
        found = loop.create_future()

        def look_up() -> None:
            answer = _look_up(host, port)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_tell, found, answer)

        # It ends with the process, which need not wait for it.
        thread = threading.Thread(target=look_up, name="look-up", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            raise BlockingIOError("the machine has no more threads") from None
        _under_way[key] = found
        found.add_done_callback(partial(_forget, key))
    return await asyncio.shield(found)


def _look_up(host: str, port: int) -> Sequence[Address] | Exception:
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # A zone stays: such an address is refused.
        return [ip_address(str(entry[4][0])) for entry in entries]
    except (OSError, ValueError) as error:
        return error


def _tell(found: _Found, answer: Sequence[Address] | Exception) -> None:
    if isinstance(answer, Exception):
        found.set_exception(answer)
    else:
        found.set_result(answer)


def _forget(key: _Key, found: _Found) -> None:
    del _under_way[key]
    found.exception()  # mark it as retrieved, as the callers may have been cancelled
