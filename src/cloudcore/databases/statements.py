"""Run statements of the platform in a running server, over its private socket."""

from __future__ import annotations

import asyncio
from typing import Final

from cloudcore.databases import postgres
from cloudcore.databases.confined_runs import Run, run
from cloudcore.databases.server import SUPERUSER, ServerFailed, ServerPaths, ServerSpec

_ANSWER_SECONDS: Final = 30.0
_STATEMENTS: Final = "/tmp/statements"  # noqa: S108 - of the program that reads them alone


async def execute(spec: ServerSpec, paths: ServerPaths, text: str) -> None:
    """Run statements as superuser; raise `ServerFailed` if one fails."""
    where = ("-h", postgres.SOCKETS_INSIDE, "-p", str(spec.port), "-U", SUPERUSER)
    psql = (postgres.program(spec.version, "psql"), "-qAtX", "-v", "ON_ERROR_STOP=1")
    told = Run(
        argv=(*psql, *where, "-d", "postgres", "-f", _STATEMENTS),
        user=paths.user,
        readable={paths.socket_folder: postgres.SOCKETS_INSIDE},
        files={_STATEMENTS: f"SET search_path = pg_catalog;\n{text}".encode()},
    )
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            ended = await run(told)
    except TimeoutError as error:
        raise ServerFailed("it does not answer") from error
    if ended.status != 0:
        raise ServerFailed(postgres.why_ended(ended.said))
