"""A server to be started, stopped and killed: ``python -m tests.integration.serving_process``.

Arguments: how many workers it has, and the port of its metrics, or 0. It tells what happens.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import time
from pathlib import Path
from typing import Final

from cloudcore.serving.asgi import Receive, Scope, Send
from cloudcore.serving.dispatch import Dispatcher
from cloudcore.serving.http.worker import ServerWorker
from cloudcore.serving.limits import ServerLimits
from cloudcore.serving.logs import configure_logging
from cloudcore.serving.processes import server
from cloudcore.serving.processes.supervisor import AGAIN_SECONDS
from registry.composition.planes import PLANES, dispatcher
from tests.integration.serving_app import SampleApplication, answer
from tests.waiting import until

SHUTDOWN_SECONDS: Final = 2.0
ENDS_LATE: Final = "ends late"


async def control_plane(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the process id; take part in the lifespan."""
    if scope["type"] == "lifespan":
        for _ in range(2):
            message = await receive()
            await send({"type": message["type"] + ".complete"})
        return
    if scope["path"] == "/die":
        os._exit(7)
    await answer(send, 200, str(os.getpid()).encode())


async def note(word: str) -> None:
    """Print a word for the test to see."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def tell_leaving() -> None:
    """Tell the test that this worker is about to stop."""
    os.write(1, b"leaving\n")  # in a handler of a signal


async def begin() -> None:
    """Print a word for the test to see, and tell a worker that waits for it."""
    await note("started")
    if alone := os.environ.get("ALONE"):
        (Path(alone) / "started").touch()


async def stick() -> None:
    """Never end by itself."""
    await asyncio.Event().wait()


class TellingApplication(SampleApplication):
    """Says for the test to see that a slow request is being answered."""

    async def get_slow(self, scope: Scope, receive: Receive, send: Send) -> None:
        await note("slow")
        await super().get_slow(scope, receive, send)


def make_application() -> Dispatcher:
    """Return what each worker serves."""
    if os.environ.get("BROKEN"):
        raise LookupError("no database")
    if alone := os.environ.get("ALONE"):
        try:
            Path(alone).mkdir()
        except FileExistsError:
            until((Path(alone) / "started").exists)
            raise
    made = dispatcher(
        TellingApplication(),
        control_plane,
        startup=begin,
        shutdown=stick if os.environ.get("STUCK") else functools.partial(note, "stopped"),
    )
    made.leave = tell_leaving
    return made


class LateWorker(ServerWorker):
    """Takes longer to end than the supervisor waits before its second SIGTERM."""

    def close(self) -> None:
        sys.stderr.write(f"{ENDS_LATE}\n")
        time.sleep(5 * AGAIN_SECONDS)
        super().close()


def announce(url: str) -> None:
    """Print the URL."""
    sys.stdout.write(url + "\n")
    sys.stdout.flush()


def main(workers: int, metrics_port: int) -> int:
    """Serve until told to stop; return the exit status."""
    configure_logging()
    if os.environ.get("LATE"):
        assert server.__dict__["ServerWorker"] is ServerWorker  # or nothing would be replaced
        vars(server)["ServerWorker"] = LateWorker
    return server.run(
        make_application,
        planes=PLANES,
        workers=workers,
        limits=ServerLimits(
            shutdown_seconds=float(os.environ.get("DRAIN", SHUTDOWN_SECONDS)),
            leaving_seconds=float(os.environ.get("LEAVING", "0")),
        ),
        metrics_bind=("127.0.0.1", metrics_port) if metrics_port else None,
        on_ready=announce,
    )


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
