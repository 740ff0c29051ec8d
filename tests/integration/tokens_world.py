"""What bearers carry, challenges and refusals, and an install with a blob to mount."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import httpx

from tests.tenants import ALLOW_ALL, HOST, URL, Install, Program, bearer, claims_of


def access_of(token: str) -> list[dict[str, Any]]:
    """Return what a bearer carries, read as anyone may read it, but for why it denies."""
    found: list[dict[str, Any]] = claims_of(token)["access"]
    return [{key: item[key] for key in item if key != "reasons"} for item in found]


REALM: Final = f'Bearer realm="{URL}/v2/token",service="{HOST}"'


def challenge(scope: str = "", error: str = "") -> str:
    """Return the one form a challenge has."""
    scope = f',scope="{scope}"' if scope else ""
    error = f',error="{error}"' if error else ""
    return f"{REALM}{scope}{error}"


def refused(answer: httpx.Response, status: int, expected: str, *, about: object = "") -> None:
    """Check a refusal, and that HEAD differs by its body only; a failure shows the case `about`."""
    assert answer.status_code == status, (about, answer.text)
    assert answer.headers.get_list("www-authenticate") == [expected], about
    if answer.request.method != "HEAD":
        code = {401: "UNAUTHORIZED", 403: "DENIED"}[status]
        assert [item["code"] for item in answer.json()["errors"]] == [code], about


DATA: Final = b"a layer"
DIGEST: Final = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
POST: Final = "/v2/acme/to/blobs/uploads/"
MOUNT: Final = f"{POST}?mount={DIGEST}&from=acme/from"
PUSH: Final = "repository:acme/to:pull,push"


async def prepare(install: Install, *statements: dict[str, object]) -> tuple[Program, str]:
    """Return a program of `acme` and its password; `acme/from` has a blob and `acme/to` none."""
    account = await install.add_account("acme")
    owner = await install.add_program(account, "owner", ALLOW_ALL)
    token = await install.exchange(await install.login(owner), "repository:acme/from:pull,push")
    async with install.connect() as client:
        path = f"/v2/acme/from/blobs/uploads/?digest={DIGEST}"
        pushed = await client.post(path, content=DATA, headers=bearer(token))
        assert pushed.status_code == 201, pushed.text
    await install.add_repository(account, "to")
    program = await install.add_program(account, "ci", *statements)
    return program, await install.login(program)
