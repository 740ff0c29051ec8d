"""The client of upstreams as a process has it: with the operator's list, and what all share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient
from registry.services.pull_through.upstream_states import UpstreamWatch
from registry.upstream.client import RegistryClient


@asynccontextmanager
async def open_upstreams(
    database: Database, clock: Clock, allowed: Allowed
) -> AsyncIterator[RegistryClient]:
    """Give the client of this process's upstreams; its connections are closed at the end."""
    http = HttpClient(allowed)
    try:
        yield RegistryClient(http, clock, UpstreamWatch(database, clock))
    finally:
        http.close()
