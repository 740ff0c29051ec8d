"""Several persons of one e-mail address sign in, each by the own password, at the cost of one."""

from __future__ import annotations

import hmac
from dataclasses import replace

import httpx
import pytest

from cloudcore.clock import uuid7
from cloudcore.iam import passwords
from cloudcore.iam.passwords import ScryptCost, hash_password
from cloudcore.identity.oauth.attempts import COOKIE, PERSON_BUDGET, SIGN_IN_BUDGET
from cloudcore.identity.rows.users import User, find_user
from cloudcore.identity.services.users import add_person
from tests.databases import on_both_databases
from tests.integration.oauth_world import PASSWORD, World, code_of
from tests.passwords import CHEAP

EMAIL = "ann@example.com"
SALT = b"0123456789abcdef"
OTHER = "another long password"
HOUR = 3600


@pytest.fixture(autouse=True)
def derived(monkeypatch: pytest.MonkeyPatch) -> list[ScryptCost]:
    """Let derivations be cheap, and return a list of those from now on."""
    noted: list[ScryptCost] = []
    derive = ScryptCost.derive

    def noting(cost: ScryptCost, password: str, salt: bytes) -> bytes:
        noted.append(cost)
        return derive(cost, password, salt)

    monkeypatch.setattr(passwords, "COST", CHEAP)
    monkeypatch.setattr(ScryptCost, "derive", noting)
    return noted


async def add(world: World, password: str, *, salt: bytes = SALT, cost: ScryptCost = CHEAP) -> User:
    """Add a person of the address; the clock goes on, so that they have an order."""
    world.pass_time(1)
    kept = hash_password(password, cost, salt)
    user = User(uuid7(), EMAIL, kept, uuid7(), world.now, world.now, must_change_password=False)
    return await world.database.write(add_person, user)


async def attempt(world: World, password: str) -> httpx.Response:
    return await world.send_page(await world.open_page(), email=EMAIL, password=password)


def strange(world: World) -> World:
    """Return the world as a browser that nobody has signed in with."""
    return replace(world, cookies={})


async def signed_in_as(world: World, password: str) -> str:
    answer = await attempt(world, password)
    assert answer.status_code == 200, answer.text
    token = (await world.redeem(code_of(answer))).json()["access_token"]
    found: str = (await world.who(token)).json()["id"]
    return found


@on_both_databases
async def test_each_signs_in_by_the_own_password(oauth: World) -> None:
    one, two = await add(oauth, PASSWORD), await add(oauth, OTHER)
    for _ in range(2):  # also in the browser of the other
        assert await signed_in_as(oauth, PASSWORD) == one.id
        assert await signed_in_as(oauth, OTHER) == two.id
    await oauth.run(f"UPDATE users SET status = 'suspended' WHERE id = '{two.id}'")
    assert (await attempt(oauth, OTHER)).status_code == 403
    assert await signed_in_as(oauth, PASSWORD) == one.id


async def test_one_password_of_several(oauth: World) -> None:
    """The known browser's person, else the one that signed in last, else the oldest."""
    people = [await add(oauth, PASSWORD) for _ in range(3)]
    assert await signed_in_as(strange(oauth), PASSWORD) == people[0].id
    await oauth.run(f"UPDATE users SET status = 'suspended' WHERE id = '{people[0].id}'")
    browser = strange(oauth)
    assert await signed_in_as(browser, PASSWORD) == people[1].id
    await oauth.run(f"UPDATE users SET status = 'suspended' WHERE id = '{people[1].id}'")
    oauth.pass_time(HOUR)
    assert await signed_in_as(oauth, PASSWORD) == people[2].id
    await oauth.run("UPDATE users SET status = 'active'")
    assert await signed_in_as(strange(oauth), PASSWORD) == people[2].id
    assert await signed_in_as(browser, PASSWORD) == people[1].id


async def test_an_attempt_takes_one_derivation_however_many_there_are(
    oauth: World, derived: list[ScryptCost], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bytes] = []
    compare = hmac.compare_digest

    class Comparing:
        @staticmethod
        def compare_digest(one: bytes, two: bytes) -> bool:
            compared.append(two)
            return compare(one, two)

    made = [await add(oauth, PASSWORD) for _ in range(3)]
    monkeypatch.setattr("cloudcore.iam.passwords.hmac", Comparing)
    for count in (3, 2, 1, 0):
        for password in ("wrong", PASSWORD):
            derived.clear()
            compared.clear()
            answer = await attempt(strange(oauth), password)
            expected = 200 if password == PASSWORD and count else 403
            assert answer.status_code == expected
            assert derived == [CHEAP]
            assert len(compared) == count
        if count:
            user_id = made[count - 1].id
            await oauth.run(f"DELETE FROM memberships WHERE user_id = '{user_id}'")
            email = f"x{count}@example.com"
            await oauth.run(f"UPDATE users SET email = '{email}' WHERE id = '{user_id}'")


def test_after_the_cost_was_raised_every_attempt_takes_one_derivation_more(
    derived: list[ScryptCost], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, now = ScryptCost(log_n=2, r=8, p=1), CHEAP
    monkeypatch.setattr(passwords, "PREVIOUS_COSTS", (before,))
    old, new = hash_password(PASSWORD, before, SALT), hash_password(OTHER, now, SALT)
    for kept, expected in (
        ([], []),
        ([old], [True]),
        ([new], [False]),
        ([old, new], [True, False]),
        ([old, old, new], [True, True, False]),
    ):
        derived.clear()
        assert passwords.match_passwords(PASSWORD, kept) == expected
        assert sorted(derived) == sorted([before, now])


def test_passwords_that_do_not_share_a_salt_are_found_all_the_same() -> None:
    kept = [hash_password(word, CHEAP) for word in (PASSWORD, OTHER, PASSWORD)]
    assert passwords.match_passwords(PASSWORD, kept) == [True, False, True]
    assert passwords.match_passwords(OTHER, kept) == [False, True, False]
    assert passwords.match_passwords("x" * 2000, kept) == [False] * 3


async def test_a_browser_of_one_person_does_not_help_to_guess_at_another(oauth: World) -> None:
    """Whoever adds a person of the address could have as many known browsers as it likes."""
    await add(oauth, PASSWORD)
    await add(oauth, OTHER)
    browsers = [strange(oauth) for _ in range(4)]
    for browser in browsers:
        await signed_in_as(browser, OTHER)
    for number in range(PERSON_BUDGET.limit):
        assert (await attempt(browsers[number % 4], "wrong")).status_code == 403
    # Its own budget is not used up, but the one for the others is: the right password fails.
    assert (await attempt(browsers[0], PASSWORD)).status_code == 403
    assert await signed_in_as(browsers[0], OTHER)
    oauth.peer = "203.0.113.9"
    assert await signed_in_as(strange(oauth), PASSWORD)


async def test_a_namesake_does_not_make_guesses_that_never_fail(oauth: World) -> None:
    """Whoever adds a person of the address could give it each password that it guesses."""
    victim, own = await add(oauth, PASSWORD), await add(oauth, OTHER)
    for _ in range(SIGN_IN_BUDGET.limit):
        assert await signed_in_as(strange(oauth), OTHER) == own.id
    await oauth.run(f"UPDATE users SET password = '{victim.password}' WHERE id = '{own.id}'")
    assert (await attempt(strange(oauth), PASSWORD)).status_code == 429
    # In the browser of the own person it is that person who signs in, whoever else could.
    oauth.peer = "203.0.113.9"
    browser = strange(oauth)
    await oauth.run(f"UPDATE users SET password = '{own.password}' WHERE id = '{own.id}'")
    assert await signed_in_as(browser, OTHER) == own.id
    await oauth.run(f"UPDATE users SET password = '{victim.password}' WHERE id = '{own.id}'")
    assert await signed_in_as(browser, PASSWORD) == own.id


async def test_guesses_in_a_known_browser_count_whether_or_not_there_are_others(
    oauth: World,
) -> None:
    """Else its owner could tell by the budget of the client address."""
    await add(oauth, OTHER)
    seen = []
    for peer in ("203.0.113.1", "203.0.113.2"):
        oauth.peer = peer
        browser = replace(oauth, cookies={})
        await signed_in_as(browser, OTHER)
        statuses = [
            (await attempt(browser, "wrong")).status_code for _ in range(PERSON_BUDGET.limit + 1)
        ]
        browser.cookies.pop(COOKIE)
        statuses.append((await attempt(browser, OTHER)).status_code)
        seen.append(statuses)
        await add(oauth, PASSWORD)
    assert seen[0] == seen[1] == [403] * PERSON_BUDGET.limit + [429, 429]


async def test_a_one_time_password_is_changed_for_its_own_person(oauth: World) -> None:
    one, two = await add(oauth, PASSWORD), await add(oauth, OTHER)
    await oauth.run(f"UPDATE users SET must_change_password = true WHERE id = '{two.id}'")
    page = await attempt(oauth, OTHER)
    chosen = "a third long password"
    sent = await oauth.send_page(page, new_password=chosen, repeated_password=chosen)
    assert sent.status_code == 200, sent.text
    kept = await oauth.database.read(find_user, one.id)
    assert kept is not None
    assert kept.password == one.password
    assert await signed_in_as(oauth, chosen) == two.id
    assert await signed_in_as(oauth, PASSWORD) == one.id
    changed = await oauth.database.read(find_user, two.id)
    assert changed is not None
    assert passwords.salt_of(changed.password) == SALT
    assert (await attempt(oauth, OTHER)).status_code == 403
