"""Run an application until the process is told to stop; ``dev`` and ``serve`` share this."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import Any

from cloudcore.db.commit_mark import CommitMark
from cloudcore.serving.dispatch import Dispatcher
from cloudcore.serving.logs import configure_logging
from cloudcore.serving.server import run
from cloudcore.serving.tls_files import TlsFilesError
from registry.main import Edition, Registry
from registry.planes import PLANES
from registry.settings import Settings, SettingsError
from registry.watched import WATCHED


def load_before_fork(settings: Settings, edition: Edition[Any]) -> None:
    """Load what the workers need into this process, so that they share it if there are several."""
    if settings.workers > 1:
        asyncio.run(Registry(settings, edition).rehearse())


def serve_application(
    settings: Settings,
    create: Callable[[Settings, CommitMark], Dispatcher],
    on_ready: Callable[[str], None],
) -> int:
    """Serve the application that `create` returns in each worker; return the exit status."""
    configure_logging()
    try:
        return run(
            partial(create, settings, CommitMark()),
            settings.host,
            settings.port,
            planes=PLANES,
            watched=WATCHED,
            workers=settings.workers,
            metrics_bind=settings.metrics_address,
            on_ready=on_ready,
            tls=settings.tls,
        )
    except TlsFilesError as error:
        raise SettingsError(str(error)) from None
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise SettingsError(
            f"another process listens on {error.filename}; "
            "name another port (--port, --metrics), or 0 for a free one"
        ) from None
