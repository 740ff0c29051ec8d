"""Who may try passwords how often: strangers exhaust what is theirs, never what is a person's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import httpx
import pytest

from cloudcore.errors import Unavailable
from cloudcore.iam import passwords
from cloudcore.iam.passwords import MAX_WAITING, MAX_WAITING_EACH, PasswordChecks, PasswordClient
from cloudcore.identity.oauth.attempts import (
    ADDRESS_BUDGET,
    COOKIE,
    LIFETIME_SECONDS,
    PERSON_BUDGET,
    SIGN_IN_BUDGET,
)
from cloudcore.serving.clients import ENOUGH
from tests.integration.oauth_world import PASSWORD, World, hidden_of

EMAIL = "ann@example.com"
WRONG = "wrong"


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count the hashes, and make them cost nothing."""
    counted: list[str] = []

    def derive(_: passwords.ScryptCost, password: str, __: bytes) -> bytes:
        counted.append(password)
        return bytes(32)

    monkeypatch.setattr(passwords.ScryptCost, "derive", derive)
    return counted


async def attempt(world: World, email: str, password: str) -> httpx.Response:
    return await world.send_page(await world.open_page(), email=email, password=password)


async def attempts(world: World, email: Callable[[int], str], count: int) -> list[int]:
    """Try wrong passwords in a strange browser; return the statuses."""
    page = await world.open_page()
    answers = [
        await world.request(
            "POST",
            "/v1/oauth/authorize",
            data={"form": hidden_of(page), "email": email(number), "password": WRONG},
            cookies={name: value for name, value in world.cookies.items() if name != COOKIE},
        )
        for number in range(count)
    ]
    return [answer.status_code for answer in answers]


def anybody(number: int) -> str:
    """Return one of a few addresses, the person's among them."""
    return EMAIL if number % 4 == 0 else f"{number % 4}@example.com"


async def test_made_up_addresses_cost_no_more_hashes_than_a_client_has(
    oauth: World, hashes: list[str]
) -> None:
    count = ADDRESS_BUDGET.limit + 10
    told = await attempts(oauth, lambda number: f"made-up-{number}@example.com", count)
    assert told == [403] * ADDRESS_BUDGET.limit + [429] * 10
    assert len(hashes) == ADDRESS_BUDGET.limit
    oauth.peer = "203.0.113.9"
    assert (await attempt(oauth, EMAIL, WRONG)).status_code == 403


async def test_the_addresses_of_one_network_are_one_client(oauth: World, hashes: list[str]) -> None:
    seen = []
    for number in range(ADDRESS_BUDGET.limit + 1):
        oauth.peer = f"2001:db8:0:1::{number + 1:x}"
        seen += await attempts(oauth, f"{number}@example.com".format, 1)
    assert seen == [403] * ADDRESS_BUDGET.limit + [429]
    oauth.peer = "2001:db8:0:2::1"
    assert await attempts(oauth, lambda _: EMAIL, 1) == [403]


async def test_unknown_and_known_addresses_are_refused_alike_within_and_beyond_the_budget(
    oauth: World, hashes: list[str]
) -> None:
    """No oracle: the same answers, after the same number of hashes."""
    await oauth.add_user(EMAIL)
    seen = []
    for peer, email in (("203.0.113.1", EMAIL), ("203.0.113.2", "nobody@example.com")):
        oauth.peer = peer
        before = len(hashes)
        statuses = []
        for _ in range(PERSON_BUDGET.limit + 2):
            answer = await attempt(oauth, email, WRONG)
            text = answer.text.replace(hidden_of(answer), "").replace(email, "")
            statuses.append((answer.status_code, text, "retry-after" in answer.headers))
        seen.append((statuses, len(hashes) - before))
    assert seen[0] == seen[1]
    assert seen[0][1] == PERSON_BUDGET.limit


async def test_a_refused_retry_does_not_lengthen_the_wait(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    assert await attempts(oauth, lambda _: EMAIL, 10) == [403] * 10
    oauth.pass_time(290)
    for _ in range(3):
        refused = await attempt(oauth, EMAIL, PASSWORD)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
    oauth.pass_time(10)
    assert (await attempt(oauth, EMAIL, PASSWORD)).status_code == 200


async def test_strangers_lock_nobody_out_elsewhere_nor_in_a_browser_of_the_person(
    oauth: World,
) -> None:
    await oauth.add_user(EMAIL)
    await oauth.sign_in(EMAIL)
    assert 429 in await attempts(oauth, anybody, 60)
    # The browser it signed in with, even at the address that strangers have exhausted.
    assert (await attempt(oauth, EMAIL, WRONG)).status_code == 403
    assert (await attempt(oauth, EMAIL, PASSWORD)).status_code == 200
    known = oauth.cookies.pop(COOKIE)
    assert (await attempt(oauth, EMAIL, PASSWORD)).status_code == 429
    # Another address: a wrong try, then the right one.
    oauth.peer = "203.0.113.9"
    assert (await attempt(oauth, EMAIL, WRONG)).status_code == 403
    assert (await attempt(oauth, EMAIL, PASSWORD)).status_code == 200
    # The cookie is good for its own person, unchanged, and for its time.
    oauth.peer = "198.51.100.7"
    await oauth.add_user("bob@example.com")
    for cookie, email in ((known, "bob@example.com"), (f"{known[:-8]}AAAAAAA=", EMAIL)):
        oauth.cookies[COOKIE] = cookie
        assert (await attempt(oauth, email, PASSWORD)).status_code == 429
    oauth.pass_time(LIFETIME_SECONDS)
    oauth.cookies[COOKIE] = known
    assert 429 in await attempts(oauth, anybody, 60)
    oauth.cookies[COOKIE] = known
    assert (await attempt(oauth, EMAIL, PASSWORD)).status_code == 429


async def test_a_known_browser_has_a_budget_too_and_its_cookie_is_out_of_reach(
    oauth: World,
) -> None:
    await oauth.add_user(EMAIL)
    answer = await attempt(oauth, EMAIL, PASSWORD)
    cookie = next(each for each in answer.headers.get_list("set-cookie") if each.startswith(COOKIE))
    for flag in ("HttpOnly", "SameSite=strict", "Path=/v1/oauth/authorize", "Max-Age="):
        assert flag in cookie
    assert EMAIL not in cookie
    for _ in range(PERSON_BUDGET.limit):
        assert (await attempt(oauth, EMAIL, WRONG)).status_code == 403
    assert (await attempt(oauth, EMAIL, PASSWORD)).status_code == 429


async def test_what_succeeds_is_not_counted(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    await oauth.add_user("bob@example.com")
    for email in (EMAIL, "bob@example.com"):
        for _ in range(SIGN_IN_BUDGET.limit):
            oauth.cookies.pop(COOKIE, None)
            assert (await attempt(oauth, email, PASSWORD)).status_code == 200
    for _ in range(ADDRESS_BUDGET.limit + 5):  # in a known browser
        assert (await attempt(oauth, "bob@example.com", PASSWORD)).status_code == 200


async def test_choosing_a_password_is_counted(oauth: World, hashes: list[str]) -> None:
    await oauth.add_user(EMAIL, one_time=True)
    user = await oauth.add_user("bob@example.com", one_time=True)
    kept = f"scrypt$4$8$1${'A' * 24}${'A' * 43}="  # what `hashes` makes of every password
    await oauth.run(f"UPDATE users SET password = '{kept}' WHERE id = '{user.id}'")
    page = await attempt(oauth, user.email, PASSWORD)
    before = len(hashes)
    told = [
        (await oauth.send_page(page, new_password=PASSWORD, repeated_password=PASSWORD))
        for _ in range(15)
    ]
    assert [each.status_code for each in told] == [400] * 10 + [429] * 5
    assert len(hashes) - before == 10


class Held:
    """Checks of passwords whose hashing waits until it is let go on, and whose turns are noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.order: list[str] = []
        """Whose turn it was; when a thread gets to it is the system's affair."""
        self.running = 0
        self.checks = PasswordChecks()
        submit = self.checks._threads.submit

        def noting(work: Callable[..., object], password: str, *rest: object) -> object:
            self.order.append(password)
            return submit(work, password, *rest)

        monkeypatch.setattr(self.checks._threads, "submit", noting)
        monkeypatch.setattr(passwords.ScryptCost, "derive", self._derive)

    def ask(self, subject: str, *, is_known: bool = False) -> asyncio.Task[list[bool]]:
        """Let a client ask for a check, and call its password as the client is called."""
        asker = PasswordClient(subject, is_known)
        return asyncio.create_task(self.checks.match(subject, [], asker))

    def _derive(self, _password: str, _: bytes) -> bytes:
        self.running += 1
        assert self.go_on.wait(30)
        return bytes(32)


async def settle() -> None:
    """Let all tasks run as far as they get without the threads."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_line_of_strangers_ends_and_known_askers_have_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)
    greedy = [held.ask("one") for _ in range(MAX_WAITING_EACH + 1)]
    await settle()
    assert [each.done() for each in greedy] == [False] * MAX_WAITING_EACH + [True]
    # Two of the greedy one are being hashed, and one may wait: the others get its other places.
    others = [held.ask(f"other-{number}") for number in range(MAX_WAITING - 3 + 1)]
    await settle()
    assert [each.done() for each in greedy] == [False] * 3 + [True] * (MAX_WAITING_EACH - 2)
    assert {type(each.exception()) for each in greedy[3:]} == {Unavailable}
    assert [each.done() for each in others].count(True) == 1
    refused = others[-1].exception()
    assert isinstance(refused, Unavailable)
    assert refused.retry_after == 5
    known = held.ask("known", is_known=True)
    leaver = held.ask("leaver", is_known=True)
    await settle()
    assert not known.done()
    leaver.cancel()
    held.go_on.set()
    assert await asyncio.wait_for(known, 30) == []
    # Two were being hashed, and by turns one stranger may have gone first on each thread.
    assert "known" in held.order[:5]
    await asyncio.wait(greedy + others, timeout=30)
    assert held.order.count("one") == 3
    assert "leaver" not in held.order
    again = held.ask("one")  # every place is free again
    assert await asyncio.wait_for(again, 30) == []


async def test_who_asks_once_waits_for_one_hash_of_each_who_asks_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)
    asked = [held.ask("flood") for _ in range(MAX_WAITING_EACH)]
    await settle()
    asked.append(held.ask("once"))
    await settle()
    held.go_on.set()
    assert await asyncio.wait_for(asyncio.gather(*asked), 30) == [[]] * len(asked)
    # Two were being hashed, the next was first in line, and one thread may be ahead by one.
    assert "once" in held.order[:5]


async def test_who_leaves_the_moment_it_is_displaced_gives_no_turn_it_never_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)
    monkeypatch.setattr(passwords, "MAX_WAITING", 4)
    flood = [held.ask("flood") for _ in range(4)]
    await settle()
    once = held.ask("once")
    await asyncio.sleep(0)  # it has taken the last place of the flood, which knows not yet
    flood[-1].cancel()
    await settle()
    assert not once.done()
    assert flood[-1].cancelled()
    assert held.checks._running == 2
    while held.running < 2:  # noqa: ASYNC110 - a thread sets no event of the loop
        await asyncio.sleep(0.001)
    assert held.order == ["flood"] * 2
    held.go_on.set()
    await asyncio.wait_for(asyncio.gather(*flood[:-1], once), 30)
    assert held.checks._running == 0


async def test_a_full_line_is_told_by_a_page_and_counts_as_no_attempt(
    oauth: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await oauth.add_user(EMAIL)
    monkeypatch.setattr(passwords, "MAX_WAITING", 0)
    for _ in range(PERSON_BUDGET.limit + 1):
        answer = await attempt(oauth, EMAIL, PASSWORD)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert "Too many people are signing in" in answer.text
    monkeypatch.setattr(passwords, "MAX_WAITING", MAX_WAITING)
    assert (await attempt(oauth, EMAIL, PASSWORD)).status_code == 200


async def test_a_proxy_that_is_not_trusted_is_warned_of(
    oauth: World, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2 * ENOUGH):
        forwarded = {"X-Forwarded-For": f"203.0.113.{number}"}
        answer = await oauth.request("GET", "/v1/jwks", headers=forwarded)
        assert answer.status_code == 200
    (told,) = [each for each in caplog.messages if "trusted proxies" in each]
    assert "ENTREPOT_TRUSTED_PROXIES=198.51.100.7" in told
