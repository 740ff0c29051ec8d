"""Golden tables of pages: files that say what a person sends the console, and what it answers.

A case begins with ``## its title``. ``> PATH`` opens a page, and ``> PATH FIELD=VALUE …`` sends a
form there, in the quotes of a shell; ``@`` is a page of the repository. A redirect is followed, but
to the sign-in.

``> image NAME`` pushes one under a tag of this name, ``> part NAME`` one without a tag, ``> index
NAME PART …`` one of such under a tag, and ``> member NAME`` adds one to the organization;
``<NAME>`` is the digest, or the id. ``> cluster`` adds one with backups, named as in
`Furnished`, and ``> status WORD`` sets its status. From ``> may ACTION …`` on a
role is acted in that may do no more, from ``> all [NAME]`` on one that may do everything, and from
``> person [NAME]`` on none, by a member or the owner. ``> v1 PATH`` reads JSON, and ``> v1 METHOD
PATH JSON`` sends it, as a program that may do everything; ``> owner …`` is the same by the owner of
the organization, and ``> anyone …`` without a sign-in. Of ``+ …`` is only asked that it succeeds.

Below stands what is answered: where a redirect led, the status if it is not 200, and lines of the
page in its order; what stands after ``&`` directly follows the line above it. The menu, each
heading, paragraph, row, field and form is a line; ``<name>`` is one word, and the same from there
on, ``…`` any text. What stands after ``-`` is nowhere on the page. JSON stands there whole, a line
for each value, but where ``...`` is any number of lines.

Lines begin with ``!`` if they are an alert, with ``=`` if they say what was done, and with ``*`` if
they are a selected option. ``FIELD=VALUE`` is a field, ``x`` or ``-`` that of a box, and ``\\n`` in
it a new line; after it stands ``wrong`` if it is marked as that, and ``described`` if the alert is
about it. A button is ``[its words]``, or ``[NAME=VALUE its words]``. A page with a form that posts
without its ``csrf`` is refused.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import httpx

from registry.oci.media_types import OCI_INDEX
from tests.integration.console_databases import furnish_cluster, set_status
from tests.integration.console_shop import REFRESH_TOKEN, Descriptor, Shop, browser_with
from tests.integration.transcripts import Case, Golden

FOLDER: Final = Path(__file__).parent / "pages"
_BLOCKS: Final = frozenset(
    ("h1", "h2", "h3", "p", "li", "tr", "dd", "pre", "textarea", "option", "summary", "caption")
)
_BEGINNING: Final = (_BLOCKS - {"dd"}) | {
    "div",
    "form",
    "dt",
    "section",
    "label",
    "fieldset",
    "svg",
}
_STATUS: Final = re.compile(r"[45]\d\d")
_CELLS: Final = frozenset(("td", "th"))
_SILENT: Final = frozenset(
    ("may", "person", "all", "member", "image", "part", "index", "cluster", "status")
)
"""Words of requests that are answered by nothing."""
_DOCUMENTS: Final = frozenset(("v1", "owner", "anyone"))
"""Words of requests that are answered by JSON."""
_SECRETS: Final = (
    *("password", "current_password", "new_password", "again"),
    *("secret", "client_secret", "private_key_pem"),
)
"""Fields of forms that no answer may show, and no log."""


def cases(name: str) -> Iterator[Case]:
    """Yield the cases of a file."""
    _, *parts = (FOLDER / f"{name}.txt").read_text().split("\n## ")
    for part in parts:
        title, *lines = part.splitlines()
        yield Case(title, [line for line in lines if line and not line.startswith("# ")])


class PageLines(HTMLParser):
    """Reads the menu of a page, and what stands between its header and its footer, as lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._text = ""
        self._hrefs: list[str] = []
        self._is_main = False
        self._is_menu = False
        self._mark = ""
        self._is_copying = False
        self._unproved: str | None = None
        """The action of the form that is read, while it posts and has no ``csrf`` yet."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "main":
            self._is_main = True
        elif tag == "nav" and not self._is_main:
            self._text, self._is_menu = "menu ", True
        elif tag in _BEGINNING:
            self._end()
        if tag == "form":
            is_post = given.get("method", "").lower() == "post"
            self._unproved = given.get("action", "") if is_post else None
            self._line(f"{given.get('method', 'get').upper()} {given.get('action', '')}".rstrip())
        elif tag in ("input", "select", "textarea"):
            self._field(tag, given)
        elif tag == "a":
            self._hrefs.append(given.get("href", ""))
        elif tag == "button":
            self._is_copying = "data-copy" in given
        self._text += self._before(tag, given)
        if given.get("role") in ("alert", "status"):
            self._mark = "! " if given["role"] == "alert" else "= "

    def _before(self, tag: str, given: Mapping[str, str]) -> str:
        """Return what stands for a tag before its text."""
        if tag in ("h1", "h2", "h3"):
            return f"{tag} "
        if tag == "option" and "selected" in given:
            return "* "
        if tag in _CELLS and self._text.strip():
            return " | "
        label = f"{given['aria-label']}: " if "aria-label" in given else ""
        if tag == "summary":
            return label
        if tag == "button" and not self._is_copying:
            return (
                f" [{given['name']}={given.get('value')} {label}"
                if "name" in given
                else f" [{label}"
            )
        return "!" if given.get("class") == "mark has" else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "main":
            self._end()
            self._is_main = False
        elif tag == "nav" and self._is_menu:
            self._end()
            self._is_menu = False
        elif tag == "a":
            self._text += f" ({self._hrefs.pop()})"
        elif tag == "button":
            self._text += "" if self._is_copying else "]"
            self._is_copying = False
        elif tag == "dt":
            self._text += ": "
        elif tag in _BLOCKS or tag in ("form", "div", "label"):
            self._end()
        if tag == "form":
            assert self._unproved is None, f"the form of {self._unproved} posts without its csrf"

    def handle_data(self, data: str) -> None:
        if not self._is_copying:
            self._text += data

    def _field(self, tag: str, given: Mapping[str, str]) -> None:
        if given.get("name") == "csrf":
            assert given.get("value"), "a form has an empty csrf"
            self._unproved = None
            return
        if given.get("name") == "once":
            given = {"name": "once"}
        self._end()
        wrong = " wrong" if given.get("aria-invalid") == "true" else ""
        about = given.get("aria-describedby", "").split()
        described = " described" if "refusal" in about else ""
        if given.get("type") in ("checkbox", "radio"):
            value = "x" if "checked" in given else "-"
        else:
            value = given.get("value", "" if tag == "input" else tag)
        value = value.replace("\r\n", "\\n")
        self._line(f"{given.get('name') or given.get('type')}={value}{wrong}{described}")

    def _end(self) -> None:
        text = " ".join(self._text.split())
        self._text = ""
        if text:
            self._line(f"{self._mark}{text}")
            self._mark = ""

    def _line(self, text: str) -> None:
        if self._is_main or self._is_menu:
            self.lines.append(text)


def lines_of(page: str) -> list[str]:
    """Return what a page says, line by line."""
    reader = PageLines()
    reader.feed(page)
    return reader.lines


@dataclass
class PagePlayer(Golden):
    """Plays a case in a browser of `console_shop`."""

    shop: Shop
    known: dict[str, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)
    """What was sent in fields of secrets."""
    persons: dict[str, str] = field(default_factory=dict)
    """The tokens of members, by name."""

    async def play(self, case: Case) -> None:
        """Send what a case says, and compare each answer with what stands below it."""
        acme = self.shop.served.acme
        self.known |= {
            "acme": acme.account_id,
            "organization": acme.organization_id,
            "globex": self.shop.served.globex.organization_id,
            "globex_account": self.shop.served.globex.account_id,
            "repository": self.shop.repository_id,
        }
        self._browser = self.shop.browser
        self._pushed: dict[str, Descriptor] = {}
        lines = case.lines
        async with AsyncExitStack() as self._stack:
            while lines:
                line, rest = lines[0], lines[1:]
                assert line[:2] in ("> ", "+ "), f"{case.title}: nothing to send: {line}"
                expected = list(takewhile(lambda each: each[:2] not in ("> ", "+ "), rest))
                words = shlex.split(self._filled(line[2:]))
                answered: list[str] = []
                try:
                    answered = await self._do(*words)
                    self._check(line, words[0], answered, expected)
                except AssertionError as error:
                    shown = "\n".join((f"{case.title}: {self._filled(line)}", *answered))
                    raise AssertionError(f"{error}\n{shown}") from None
                lines = rest[len(expected) :]

    def _check(self, line: str, word: str, answered: list[str], expected: list[str]) -> None:
        """Compare the lines of an answer with those that stand below a request."""
        is_silent = line[0] == "+" or word in _SILENT
        assert bool(expected) != is_silent, "what is answered stands below, unless after a +"
        assert _is_refused(answered) == _is_refused(expected), "the status is another"
        positive = [each for each in expected if not each.startswith("- ")]
        if word in _DOCUMENTS and positive:
            found = re.fullmatch(self._pattern(positive), "".join(f"{one}\n" for one in answered))
            assert found, "\n".join(("the document is not", *positive, "but"))
            self.known |= found.groupdict()
            positive = []
        rest = answered
        for each in expected:
            if each.startswith("- "):
                absent = self._filled(each[2:])
                assert not any(absent in one for one in answered), f"there is {absent}"
            elif each.startswith("& "):
                self._after(each[2:], rest[:1])
                rest = rest[1:]
            elif each in positive:
                rest = self._after(each, rest)

    async def _do(self, word: str, *more: str) -> list[str]:
        match word, more:
            case "may", actions:
                await self._become(self.shop.browser_that_may(*actions))
                return []
            case "person", names:
                await self._become(self._with("", *names))
                return []
            case "all", names:
                program = self.shop.served.acme.program_token
                await self._become(self._with(program, *names))
                return []
            case "member", (name,):
                await self._add_member(name)
                return []
            case (("image" | "part" | "index"), (name, *parts)):
                await self._push(word, name, parts)
                return []
            case "cluster", ():
                self.known |= (await furnish_cluster(self.shop))._asdict()
                return []
            case "status", (status,):
                await set_status(self.shop, self.known["cluster"], status)
                return []
            case (("v1" | "owner" | "anyone"), asked):
                return await self._ask(word, *asked)
        path = self._path(word)
        fields = dict(each.partition("=")[::2] for each in more)
        fields = {name: value.replace("\\n", "\r\n") for name, value in fields.items()}
        self.secrets |= {value for name, value in fields.items() if name in _SECRETS and value}
        answer = await (
            self._browser.post(path, data={"csrf": "csrf", **fields})
            if more
            else self._browser.get(path)
        )
        return await self._followed(answer)

    def _path(self, word: str) -> str:
        """Return a path of the console: `word` may be ``@/tags``, ``@:tag`` or ``@@digest``."""
        if word[0] != "@":
            return word
        return (
            f"{self.shop.base}{word[1:]}"
            if word[1:2] in ("@", ":")
            else self.shop.address(word[1:])
        )

    async def _become(self, browser: AbstractAsyncContextManager[httpx.AsyncClient]) -> None:
        self._browser = await self._stack.enter_async_context(browser)

    def _with(
        self, access_token: str, name: str = ""
    ) -> AbstractAsyncContextManager[httpx.AsyncClient]:
        served, person_id = self.shop.served, self.known.get(name, "1")
        token = self.persons.get(name, "")
        return browser_with(served, self.shop.app, access_token, token, user_id=person_id)

    async def _push(self, kind: str, name: str, parts: Sequence[str]) -> None:
        if kind == "index":
            manifests = [self._pushed[each] for each in parts]
            index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}
            made = await self.shop.manifest(index, name)
        else:
            made = await self.shop.image(name, name if kind == "image" else "")
        self._pushed[name] = made
        self.known[name] = made["digest"]

    async def _add_member(self, name: str) -> None:
        served = self.shop.served
        person, token = await served.add_person(name)
        await served.join(
            served.acme.organization_id, person.email, token, by=served.acme.person_token
        )
        self.known[name], self.persons[name] = person.id, token

    async def _followed(self, answer: httpx.Response) -> list[str]:
        """Return the lines of an answer, after those of the redirects that led to it."""
        led = []
        self._check_answer(answer)
        while answer.is_redirect:
            led.append(f"→ {answer.headers['location']}")
            if answer.headers["location"].startswith("/console/sign-in"):
                return led
            answer = await self._browser.get(answer.headers["location"])
            self._check_answer(answer)
        status = [] if answer.status_code == 200 else [str(answer.status_code)]
        return [*led, *status, *lines_of(answer.text)]

    def _check_answer(self, answer: httpx.Response) -> None:
        """Check that an answer defends itself, and shows no secret and no token."""
        check_defence(answer)
        acme = self.shop.served.acme
        tokens = (acme.program_token, acme.person_token, REFRESH_TOKEN, *self.persons.values())
        shown = f"{answer.headers} {answer.text}"
        for secret in (*self.secrets, *tokens):
            assert secret not in shown, f"a secret or a token is in {shown}"

    async def _ask(self, who: str, *asked: str) -> list[str]:
        acme = self.shop.served.acme
        token = {"v1": acme.program_token, "owner": acme.person_token, "anyone": ""}[who]
        method, path, body = asked if len(asked) > 1 else ("GET", *asked, "null")
        answer = await self.shop.served.ask(method, path, json.loads(body), token=token)
        status = [] if answer.is_success else [str(answer.status_code)]
        return [*status, *(_lines_of_json(answer.json()) if answer.content else [])]


def _is_refused(lines: list[str]) -> bool:
    """Return True if the answer of these lines, after its redirects, has the status of an error."""
    first = next((each for each in lines if not each.startswith("→ ")), "")
    return _STATUS.fullmatch(first) is not None


def check_defence(answer: httpx.Response) -> None:
    """Check the headers that keep an answer of the console from being abused."""
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


def _lines_of_json(value: Any, at: str = "") -> list[str]:  # noqa: ANN401 - JSON
    """Return a line for each value of a document, with its path."""
    if isinstance(value, dict) and value:
        return [
            line for name, each in value.items() for line in _lines_of_json(each, f"{at}.{name}")
        ]
    if isinstance(value, list) and value:
        return [line for n, each in enumerate(value) for line in _lines_of_json(each, f"{at}.{n}")]
    text = value if isinstance(value, str) else json.dumps(value)
    return [f"{at.removeprefix('.')}: {text}"]
