"""The interface of a connection for request cycles and kept answers."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from cloudcore.serving.bodies.connection import BodyConnection
from cloudcore.serving.dispatch import Application
from cloudcore.serving.http.head import HeadReader
from cloudcore.serving.http.worker import ServerWorker
from cloudcore.serving.request_record import RequestRecord

C_contra = TypeVar("C_contra", contravariant=True)


class RequestConnection(BodyConnection, Protocol[C_contra]):
    """A connection, as a request cycle of the type `C_contra` sees it."""

    server: tuple[str, int] | None
    client: tuple[str, int] | None
    app_state: dict[str, Any]
    application: Application
    reader: HeadReader
    tasks: set[Any]
    closing: bool

    @property
    def worker(self) -> ServerWorker:
        """Return the state that the connections of its process share."""
        ...

    @property
    def port(self) -> int | None:
        """Return the port of this machine that the client has reached."""
        ...

    def common_lines(self) -> bytes:
        """Return the header lines of every response."""
        ...

    def waiting_bytes(self) -> int:
        """Return the written bytes that are not acknowledged."""
        ...

    def abort(self, reason: str = "") -> None:
        """Close at once and drop unsent bytes; `reason` is for the log."""
        ...

    def refuse(self, status: int, message: str) -> None:
        """Send an error response instead of the application's, and close."""
        ...

    def run(self, cycle: C_contra, application: Application) -> None:
        """Let an application answer the current request."""
        ...

    def record(self, cycle: C_contra) -> RequestRecord:
        """Call the observers with the record of an ended request, and return it."""
        ...

    def cycle_ended(self, cycle: C_contra) -> None:
        """Continue with the next request, or close."""
        ...

    def answered(self, record: RequestRecord, now: float) -> None:
        """Expect the next request, after one that was answered without a cycle."""
        ...
