"""Sign a person in by authorization code with PKCE (RFC 7636, RFC 8252).

The browser of this machine returns the code by a redirect to loopback. A browser on another machine
shows the code, which the person pastes here. The first code counts.
"""

from __future__ import annotations

import os
import secrets
import select
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO
from urllib.parse import urlencode

from cloudcore.base64url import code_challenge
from cloudcore.command_failures import CommandFailure, Misuse
from cloudcore.commands.prompts import checked_secret, prompting, read_secret
from cloudcore.commands.records import printable, write_now
from registry.cli.client.api import ApiClient
from registry.cli.client.credentials import Credential
from registry.cli.client.sign_in import CLIENT, post_form, token_of
from registry.cli.client.transport import HttpRequest, Transport

if TYPE_CHECKING:
    from registry.cli.client.loopback_redirect import LoopbackRedirect


OUT_OF_BAND: Final = "urn:ietf:wg:oauth:2.0:oob"
_PATH: Final = "/v1/oauth/authorize"
_PROMPT: Final = "Code: "
_WAIT_SECONDS: Final = 600
"""The time for which the registry's form is valid."""

_Open = Callable[[str], object]


class _Received(NamedTuple):
    """An authorization code, and the `redirect_uri` it was issued for."""

    code: str
    redirect_uri: str


def sign_in_person(transport: Transport, *, with_browser: bool = True) -> Credential:
    """Return the tokens of a person who signs in on the registry's page.

    Raises:
        RequestRefused: the registry has no such page, or refuses the code.
        Misuse: no code was pasted.
        CommandFailure: nobody signs in in time.

    """
    verifier = secrets.token_urlsafe(48)
    pasting = _page(verifier, OUT_OF_BAND)
    wanted = HttpRequest("GET", pasting, {"Accept": "text/html"})
    transport.fetch(wanted)  # fails here if there is no such page
    open_page = _browser() if with_browser else None
    if open_page is None:
        received = _by_pasting(f"{transport.url_for(_PATH)}{pasting}")
    else:
        received = _by_browser(transport.url_for(_PATH), pasting, verifier, open_page)
    form = {
        "grant_type": "authorization_code",
        "code": received.code,
        "code_verifier": verifier,
        "client_id": CLIENT,
        "redirect_uri": received.redirect_uri,
    }
    answer = post_form(transport, "/v1/oauth/token", form)
    return Credential(token_of(answer), answer.get("refresh_token"))


def _page(verifier: str, redirect_uri: str, state: str = "") -> str:
    """Return path and query of the sign-in page.

    Without a redirect to this machine no `state` is needed: the verifier, which leaves this process
    only together with the code, binds the code to this process.
    """
    query = {
        "response_type": "code",
        "client_id": CLIENT,
        "redirect_uri": redirect_uri,
        "code_challenge": code_challenge(verifier),
        "code_challenge_method": "S256",
    }
    return f"{_PATH}?{urlencode(query | ({'state': state} if state else {}))}"


def _browser() -> _Open | None:
    """Return a function that opens a page in a window; None if this machine shows no windows.

    ``BROWSER`` names a program of the person's choice. Without this variable, a browser that runs
    in the terminal is not used: it would take the terminal from this command.
    """
    import webbrowser  # noqa: PLC0415 - needed by this command alone

    chosen = os.environ.get("BROWSER")
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    if not chosen and sys.platform != "darwin" and not any(map(os.environ.get, screens)):
        return None
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return None
    return None if not chosen and type(found) is webbrowser.GenericBrowser else found.open


def _by_pasting(page: str) -> _Received:
    write_now(f"Open this page, sign in, and copy the code it shows:\n\n  {page}\n\n")
    return _Received(read_secret(_PROMPT, "code", None), OUT_OF_BAND)


def _by_browser(url: str, pasting: str, verifier: str, open_page: _Open) -> _Received:
    """Open the page in a browser here; return the code of its redirect, or a pasted code."""
    from registry.cli.client.loopback_redirect import LoopbackRedirect  # noqa: PLC0415 - a server

    try:
        redirect = LoopbackRedirect()
    except OSError:  # a machine without loopback
        return _by_pasting(f"{url}{pasting}")
    page = f"{url}{_page(verifier, redirect.uri, redirect.state)}"
    with redirect:
        write_now(
            "Your browser opens the page to sign in. If it does not, open it yourself:\n\n"
            f"  {page}\n\n"
            "In a browser on another machine open this one, and paste the code it shows:\n\n"
            f"  {url}{pasting}\n\n"
        )
        # In a thread, as some browsers end only when their window is closed.
        Thread(target=open_page, args=(page,), daemon=True).start()
        with prompting(_PROMPT):
            return _first(redirect)


def _first(redirect: LoopbackRedirect) -> _Received:
    """Return the code from the redirect or from standard input, whichever comes first.

    Raise `CommandFailure` if neither comes in time; `Misuse` if an empty line was pasted.
    """
    inputs: list[LoopbackRedirect | TextIO] = [redirect]
    with suppress(OSError, ValueError):  # standard input may be closed, or no file
        sys.stdin.fileno()
        inputs.append(sys.stdin)
    while True:
        ready, _, _ = select.select(inputs, [], [], _WAIT_SECONDS)
        if redirect in ready:
            return _Received(redirect.code, redirect.uri)
        if not ready:
            raise CommandFailure("nobody signed in within 10 minutes; run the command again")
        try:
            line = sys.stdin.readline()
        except UnicodeDecodeError:
            line = "\n"  # no code
        if not line:  # standard input has ended, but the redirect may still come
            inputs.remove(sys.stdin)
            continue
        pasted = checked_secret(line, "code")
        code = redirect.code_in(pasted) if pasted.startswith(redirect.uri) else None
        # A person may also paste the URL of a redirect that did not reach this machine.
        return _Received(pasted, OUT_OF_BAND) if code is None else _Received(code, redirect.uri)


class AssignedRole(NamedTuple):
    """A role that is assigned to the person."""

    name: str
    account: str
    """The account's handle."""
    crn: str

    @property
    def shown(self) -> str:
        """Return the role's name and account, for display."""
        return f"{printable(self.name)} of {printable(self.account)}"


def choose_role(client: ApiClient) -> AssignedRole | None:
    """Return the person's only role, or the one picked at the terminal.

    Print advice and return None if the person has no role, or several and there is no terminal.
    Raise `Misuse` if the answer at the terminal is not a role's number.
    """
    roles = [
        AssignedRole(each["name"], each["account"]["name"], each["crn"])
        for each in client.rows("/v1/users/me/roles", "roles")
    ]
    if len(roles) == 1:
        return roles[0]
    if not roles:
        write_now(
            "No role is assigned to you, and a person acts in an account by a role: "
            "ask its administrator for one.\n"
        )
        return None
    if sys.stdin.isatty() and sys.stderr.isatty():
        return pick(roles)
    write_now("You can act in several roles. Choose one:\n")
    for role in roles:
        write_now(f"  entrepot login {client.url} --role {_option(role, roles)}\n")
    return None


def pick(roles: Sequence[AssignedRole]) -> AssignedRole:
    """Ask at the terminal for a role. Raise `Misuse` if the answer is not a role's number."""
    for number, role in enumerate(roles, 1):
        sys.stderr.write(f"  {number}  {role.shown}\n")
    sys.stderr.write(f"In which role do you want to act? [1-{len(roles)}] ")
    sys.stderr.flush()
    typed = sys.stdin.readline().strip()
    if not typed.isascii() or not typed.isdigit() or not 1 <= int(typed) <= len(roles):
        raise Misuse("you are signed in without a role; 'entrepot login URL --role ROLE' takes one")
    return roles[int(typed) - 1]


def _option(role: AssignedRole, roles: Sequence[AssignedRole]) -> str:
    """Return the ``--role`` value for a role: its name if that is unique, else its CRN."""
    names = Counter(each.name for each in roles)
    return printable(role.name if names[role.name] == 1 else role.crn)
