"""The pages of the sign-in: plain HTML that loads nothing and runs no script."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Final

from cloudcore.identity.passwords import MIN_CHARACTERS

PATH: Final = "/v1/oauth/authorize"

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
main { margin: 12vh auto 0; max-width: 24rem; padding: 0 1rem }
label { display: block; margin-top: 1rem }
input, button { box-sizing: border-box; font: inherit; padding: .5rem; width: 100% }
button { margin-top: 1.5rem }
output { display: block; font: 1.1rem ui-monospace, monospace; overflow-wrap: anywhere;
  border: 1px solid #8888; padding: 1rem; user-select: all }
[role=alert] { border-left: .25rem solid #c33; padding-left: .75rem }
"""
_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def sign_in_page(hidden: str, email: str = "", complaint: str = "") -> str:
    """Return the page that asks for address and password."""
    focus = ("", " autofocus") if email else (" autofocus", "")
    return _page(
        "Sign in",
        f"""{_alert(complaint)}<form method="post" action="{PATH}">
<input type="hidden" name="form" value="{escape(hidden)}">
<label for="email">E-mail address</label>
<input id="email" name="email" type="email" autocomplete="username" required
 maxlength="254" value="{escape(email)}"{focus[0]}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required
 maxlength="1024"{focus[1]}>
<button type="submit">Sign in</button>
</form>""",
    )


def new_password_page(hidden: str, email: str, complaint: str = "") -> str:
    """Return the page on which a one-time password is replaced."""
    return _page(
        "Choose a password",
        f"""{_alert(complaint)}<p>The password you were given is good for this once.
Yours has at least {MIN_CHARACTERS} characters.</p>
<form method="post" action="{PATH}">
<input type="hidden" name="form" value="{escape(hidden)}">
<label for="email">E-mail address</label>
<input id="email" type="email" autocomplete="username" readonly value="{escape(email)}">
<label for="new_password">New password</label>
<input id="new_password" name="new_password" type="password" autocomplete="new-password" required
 minlength="{MIN_CHARACTERS}" maxlength="1024" autofocus>
<label for="repeated_password">The same again</label>
<input id="repeated_password" name="repeated_password" type="password"
 autocomplete="new-password" required minlength="{MIN_CHARACTERS}" maxlength="1024">
<button type="submit">Go on</button>
</form>""",
    )


def code_page(code: str) -> str:
    """Return the page that shows the code, for the person to carry to the command."""
    return _page(
        "Your code",
        f"""<p>Copy this code to the command that waits for it. It is good for five minutes
and for one attempt.</p>
<output id="code">{escape(code)}</output>
<p>If no command of yours asked for it, close this page.</p>""",
    )


def refusal_page(code: str, words: str) -> str:
    """Return the page that says why there is no form."""
    return _page(
        "Cannot sign in", f"{_alert(f'{words}.')}<p>Error: <code>{escape(code)}</code></p>"
    )


def _alert(words: str) -> str:
    return f'<p role="alert">{escape(words)}</p>\n' if words else ""


def _page(title: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""
