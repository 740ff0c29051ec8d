"""Access keys that log in at ``/v2/token`` themselves, in accounts that allow it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address
from typing import Any, Final, NamedTuple

import httpx
import pytest

from cloudcore.clock import uuid7
from cloudcore.errors import Unauthenticated
from cloudcore.identity.services import service_accounts
from registry.services.access.logins import (
    ADDRESS_BUDGET,
    CREDENTIAL_BUDGET,
    find_key,
    log_in,
    principal_of,
)
from registry.services.registry_settings import update_settings
from tests.integration.counting import CountingDatabase
from tests.integration.tokens_world import access_of
from tests.tenants import HOST, Install, Program, allow, basic, bearer, deny, note_nothing

SCOPE: Final = "repository:acme/web/a:pull,push"
WRONG: Final = "A" * 40
UNKNOWN: Final = f"AK{'Z' * 18}"


class Key(NamedTuple):
    """An access key with its secret."""

    program: Program
    row_id: str
    id: str
    secret: str


async def add_key(install: Install, program: Program) -> Key:
    made = service_accounts.new_access_key()
    row = made.row(install.keyring, uuid7(), program.account.id, program.id, install.clock())
    await install.database.write(service_accounts.create_access_key, row)
    return Key(program, row.id, made.access_key_id, made.secret)


async def switch(install: Install, program: Program, *, on: bool) -> None:
    change = {"access_key_login": on}
    await install.database.write(update_settings, program.account.id, change, install.clock())


async def make_key(install: Install, *, on: bool = True) -> Key:
    """Return a key of ``acme`` that may pull and push below ``web/``."""
    account = await install.add_account("acme")
    may = allow("registry:PullImage", "registry:PushImage", on="crn:registry:*:*:repository/web/*")
    creates = allow("registry:CreateRepository")
    program = await install.add_program(account, "ci", may, creates)
    await switch(install, program, on=on)
    return await add_key(install, program)


async def ask(
    install: Install, name: str, secret: str, *, method: str = "GET", address: str = "192.0.2.7"
) -> httpx.Response:
    async with install.connect(address=address) as client:
        if method == "GET":
            query = {"scope": SCOPE, "service": HOST}
            return await client.get("/v2/token", params=query, headers=basic(secret, name))
        form = {"grant_type": "password", "username": name, "password": secret, "scope": SCOPE}
        return await client.post("/v2/token", data={**form, "service": HOST})


def told(answer: httpx.Response) -> tuple[int, Any, str | None]:
    return answer.status_code, answer.json(), answer.headers.get("www-authenticate")


async def test_a_key_gets_the_rights_of_its_service_account(install: Install) -> None:
    key = await make_key(install)
    for method in ("GET", "POST"):
        answer = await ask(install, key.id, key.secret, method=method)
        assert answer.status_code == 200, answer.text
        token = answer.json()["token"]
        (entry,) = access_of(token)
        assert (entry["name"], entry["actions"]) == ("acme/web/a", ["pull", "push"])
    found = install.tokens.verify(token)
    assert found.subject == key.program.crn
    assert (found.login_id, found.access_key_id) == (None, key.id)
    async with install.connect() as client:
        # A first push asks for a right that the bearer does not list.
        path = "/v2/acme/web/a/blobs/uploads/"
        assert (await client.post(path, headers=bearer(token))).status_code == 202
        elsewhere = await client.get("/v2/acme/db/tags/list", headers=bearer(token))
        assert elsewhere.status_code == 401

    await install.say(key.program, deny("registry:PushImage"))
    (entry,) = access_of((await ask(install, key.id, key.secret)).json()["token"])
    assert (entry["actions"], entry["denied"]) == ([], ["pull", "push"])


async def test_it_is_off_until_the_account_turns_it_on(install: Install) -> None:
    key = await make_key(install, on=False)
    assert (await ask(install, key.id, key.secret)).status_code == 401
    await switch(install, key.program, on=True)
    assert (await ask(install, key.id, key.secret)).status_code == 200
    await switch(install, key.program, on=False)
    assert (await ask(install, key.id, key.secret)).status_code == 401


async def statements(install: Install, name: str, secret: str) -> int:
    """Return the number of statements of a refused login from an address of its own."""
    database = CountingDatabase(install.database)
    source = IPv4Address(install.clock.now % 2**32)
    with pytest.raises(Unauthenticated):
        await log_in(database, install.clock, name, secret, source, find_key, note_nothing)
    return len(database.seen)


End = Callable[[Install, Key], Awaitable[object]]


async def change(install: Install, key: Key, **columns: object) -> None:
    whose = (key.program.account.id, key.program.id), key.row_id
    change_key, now = service_accounts.update_access_key, install.clock()
    await install.database.write(change_key, *whose, columns, now)
    install.clock.advance(1)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda i, k: switch(i, k.program, on=False), id="turned off"),
        pytest.param(lambda i, k: change(i, k, status="inactive"), id="deactivated"),
        pytest.param(lambda i, k: change(i, k, expires_at=i.clock() + 1), id="expired"),
        pytest.param(lambda i, k: i.suspend_account(k.program.account), id="suspended"),
        pytest.param(
            lambda i, k: i.database.write(
                service_accounts.delete_access_key, (k.program.account.id, k.program.id), k.row_id
            ),
            id="deleted",
        ),
    ],
)
async def test_every_refusal_looks_and_costs_like_a_wrong_secret(
    install: Install, end: End
) -> None:
    key = await make_key(install)
    token = (await ask(install, key.id, key.secret)).json()["token"]
    wrong = told(await ask(install, key.id, WRONG))
    form = told(await ask(install, key.id, WRONG, method="POST"))
    assert (wrong[0], form[0], form[1]["error"]) == (401, 401, "invalid_grant")
    work = await statements(install, key.id, WRONG)
    assert told(await ask(install, UNKNOWN, key.secret)) == wrong
    assert await statements(install, UNKNOWN, key.secret) == work
    await end(install, key)
    assert told(await ask(install, key.id, key.secret)) == wrong
    assert told(await ask(install, key.id, key.secret, method="POST")) == form
    assert await statements(install, key.id, key.secret) == work
    # An earlier bearer gets no further rights either.
    assert await install.tokens.find_subject(install.tokens.verify(token), None) is None


async def test_guesses_at_a_key_end_at_its_budget(install: Install) -> None:
    key = await make_key(install)
    other = await add_key(install, await install.add_program(key.program.account, "other"))
    for _ in range(CREDENTIAL_BUDGET.limit):
        assert (await ask(install, key.id, WRONG)).status_code == 401
    for secret in (WRONG, key.secret):
        for method in ("GET", "POST"):
            refused = await ask(install, key.id, secret, method=method)
            assert refused.status_code == 429
            assert 1 <= int(refused.headers["retry-after"]) <= CREDENTIAL_BUDGET.window_seconds
    # Neither another key nor another address is held up.
    assert (await ask(install, other.id, other.secret)).status_code == 200
    assert (await ask(install, key.id, key.secret, address="192.0.2.8")).status_code == 200
    install.clock.advance(CREDENTIAL_BUDGET.window_seconds)
    assert (await ask(install, key.id, key.secret)).status_code == 200


async def test_guesses_of_an_address_end_at_its_budget_and_stop_no_right_key(
    install: Install,
) -> None:
    key = await make_key(install)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    for number in range(ADDRESS_BUDGET.limit):
        assert (await ask(install, f"AK{'A' * 17}{letters[number]}", WRONG)).status_code == 401
    assert (await ask(install, UNKNOWN, WRONG)).status_code == 429
    assert (await ask(install, key.id, WRONG)).status_code == 429
    assert (await ask(install, key.id, key.secret)).status_code == 200


async def test_the_use_of_a_key_is_noted(install: Install) -> None:
    """`LastUses` notes by this field which key a principal acts by."""
    key = await make_key(install)
    login = await log_in(
        install.database, install.clock, key.id, key.secret, None, find_key, note_nothing
    )
    assert principal_of(login).access_key_id == key.row_id


async def test_other_user_names_are_refused_as_before(install: Install) -> None:
    key = await make_key(install)
    for name in ("AK", f"ak{'a' * 18}", f"AK{'A' * 17}1", "", "admin", "token"):
        assert (await ask(install, name, key.secret)).status_code == 401, name


async def test_the_setting_needs_its_action_and_is_told(install: Install) -> None:
    key = await make_key(install, on=False)
    manage = allow("registry:GetRegistrySettings", "registry:UpdateRegistrySettings")
    admin = await install.add_program(key.program.account, "admin", manage)
    async with install.connect() as client:
        path, change = "/v1/registry-settings", {"access_key_login": True}
        refused = await client.patch(path, json=change, headers=bearer(key.program.access_token))
        assert refused.status_code == 403
        client.headers.update(bearer(admin.access_token))
        assert not (await client.get(path)).json()["registry_settings"]["access_key_login"]
        for body in (change, {"undelete_days": 3}):
            changed = await client.patch(path, json=body)
            assert changed.json()["registry_settings"]["access_key_login"]
        assert (await client.patch(path, json={"access_key_login": 1})).status_code == 400
