"""Walk the console as a browser without script would: follow its links, and send its forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

import httpx

from registry.console.addresses import SIGNED_OUT, parse_address

_IDS: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|sha256:[0-9a-f]{64}"
)
_NAMES: Final = re.compile(
    r"(?<=/repositories/)-|(?<=/tags/)[^/]+|(?<=/pins/)[^/]+|(?<=/buckets/)[^/{][^/]*"
)
_PARAMETERS: Final = re.compile(r"\{[a-z_]+:str\}")


class Form(NamedTuple):
    """A form of a page, with what a person would send who fills only what must be filled."""

    page: str
    method: str
    action: str
    fields: Mapping[str, str]

    @property
    def kind(self) -> str:
        """Return the path to which it is sent, without ids and names."""
        return kind_of(self.action)


def kind_of(path: str) -> str:
    """Return the path of a route or of an address of the console, without ids and names."""
    if "{" in path:
        return _PARAMETERS.sub("{}", path)
    address = parse_address(path)
    return _NAMES.sub("{}", _IDS.sub("{}", path if address is None else address.routed))


class _Reader(HTMLParser):
    """Reads the links and forms of a page."""

    def __init__(self, page: str, filled: Mapping[str, str]) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[Form] = []
        self._page = page
        self._filled = filled
        self._fields: dict[str, str] | None = None
        self._select = ""
        self._area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a" and "download" not in given:
            self.links.append(urljoin(self._page, given.get("href", "")))
        elif tag == "form":
            self._fields = {}
            action = urljoin(self._page, given.get("action", "") or self._page)
            method = given.get("method", "get")
            self.forms.append(Form(self._page, method, urlsplit(action).path, self._fields))
        elif self._fields is not None:
            self._read_field(tag, given)

    def _read_field(self, tag: str, given: Mapping[str, str]) -> None:
        assert self._fields is not None
        name = given.get("name", "")
        if tag == "button" and "formaction" in given:
            last = self.forms[-1]
            self.forms.append(last._replace(action=urljoin(self._page, given["formaction"])))
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select:
            if "selected" in given or self._select not in self._fields:
                self._fields[self._select] = given.get("value", "")
        elif tag == "textarea":
            self._area = name
            self._fields[name] = ""
        elif tag == "input" and name:
            if given.get("type") == "checkbox":
                if "checked" in given or name == "force" or name.startswith("pick."):
                    self._fields[name] = "on"
            else:
                self._fields[name] = given.get("value") or self._filled.get(name, "")

    def handle_data(self, data: str) -> None:
        if self._area and self._fields is not None:
            self._fields[self._area] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._fields = None
        elif tag in ("select", "textarea"):
            self._select = self._area = ""


@dataclass
class Walk:
    """What a person finds in the console who follows each link once."""

    browser: httpx.AsyncClient
    filled: Mapping[str, str]
    """Values for fields that have none."""
    own: tuple[str, ...] = ()
    """Ids of the person, program and account that walk; forms about them are not sent."""
    pages: dict[str, str] = field(default_factory=dict)
    """Texts by path."""
    forms: dict[tuple[str, str], Form] = field(default_factory=dict)
    """The forms that change something, by where they are sent and what they confirm."""
    searches: set[httpx.URL] = field(default_factory=set)
    """Where the forms lead that change nothing; that of the head is on each page."""
    refused: list[str] = field(default_factory=list)
    """Links that led to a refusal."""

    async def follow(self, *paths: str) -> None:
        """Open these pages, and all that they lead to."""
        waiting = [*paths]
        while waiting:
            path = waiting.pop(0)
            if path in self.pages:
                continue
            answer = await self.browser.get(path)
            if answer.is_redirect:
                self.pages[path] = ""
                waiting.append(answer.headers["location"])
                continue
            self.pages[path] = answer.text
            if answer.status_code == 403:
                self.refused.append(path)
            assert answer.status_code in (200, 403, 404), (path, answer.text)
            waiting += self._read(path, answer.text)

    def _read(self, path: str, text: str) -> list[str]:
        """Note the forms of a page; return the pages of the console that it leads to."""
        reader = _Reader(path, self.filled)
        reader.feed(text)
        for form in reader.forms:
            if form.method == "get":
                self.searches.add(httpx.URL(form.action, params=dict(form.fields)))
            else:
                self.forms.setdefault((form.action, form.fields.get("confirmed", "")), form)
        found = [urlsplit(link) for link in reader.links]
        return [link.path for link in found if link.path.startswith("/console/")]

    async def ask(self) -> None:
        """Send each form that changes nothing."""
        for search in sorted(self.searches, key=str):
            answer = await self.browser.get(search)
            if answer.status_code == 403:
                self.refused.append(search.path)

    async def send(self) -> None:
        """Send each form but the sign-out, deletions last, and confirm what asks for that."""
        sent = set[tuple[str, str]]()
        while waiting := sorted((key for key in self.forms if key not in sent), key=_late):
            while waiting:
                key = waiting.pop(0)
                sent.add(key)
                form = self.forms[key]
                if any(each in form.action for each in (*self.own, "sign-out")):
                    continue
                answer = await self.browser.post(form.action, data=dict(form.fields))
                if answer.status_code == 403:
                    self.refused.append(f"{form.action} of {form.page}")
                assert answer.status_code < 500, (form, answer.text)
                if answer.is_redirect:
                    assert answer.headers["location"] != SIGNED_OUT, form
                    answer = await self.browser.get(answer.headers["location"])
                if answer.status_code == 200:
                    self._read(urlsplit(str(answer.url)).path, answer.text)
                confirmed = (form.action, "yes")
                if confirmed in self.forms and confirmed not in sent:
                    waiting.insert(0, confirmed)

    @property
    def kinds(self) -> set[str]:
        """Return where the forms are sent, without ids and names."""
        return {form.kind for form in self.forms.values()}


def _late(key: tuple[str, str]) -> tuple[bool, int]:
    """Return the order in which forms are sent."""
    action = key[0]
    is_loss = action.rpartition("/")[2] in ("delete", "remove", "detach", "private")
    return is_loss, -action.count("/")
