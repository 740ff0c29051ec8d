"""Render the sign-in pages: plain HTML without scripts or external resources."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from typing import Final, NamedTuple
from urllib.parse import urlencode

from cloudcore.iam.passwords import MIN_CHARACTERS

PATH: Final = "/v1/oauth/authorize"
PROVIDER_PATH: Final = f"{PATH}/provider"
"""Path at which a sign-in at an identity provider begins."""
CALLBACK_PATH: Final = f"{PATH}/callback"
"""Path to which identity providers redirect browsers back; each provider has a path below it."""

_STYLE: Final = """
:root {
  color-scheme: light dark;
  --ground: #f7f6f3; --surface: #ffffff; --raised: #f0eeea; --ink: #1b2226; --quiet: #566169;
  --line: #dcd9d2; --edge: #8a9196; --accent: #0b5563; --on-accent: #ffffff;
  --danger: #a32a20; --danger-ground: #fbeae7;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #11171a; --surface: #192125; --raised: #222c31; --ink: #e7ebec; --quiet: #a1adb3;
    --line: #2e393f; --edge: #74828a; --accent: #6cc7d5; --on-accent: #06262c;
    --danger: #ff9d92; --danger-ground: #3a211f;
  }
}
*, ::before, ::after { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { margin: 0; background: var(--ground); color: var(--ink) }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: 4px }
.inside { margin: 0 auto; max-width: 26rem; padding: 0 1rem }
.brand { display: flex; align-items: center; justify-content: center; gap: .5rem;
  margin: max(2rem, 11vh) 0 1.25rem; font-size: 1.125rem; font-weight: 650;
  letter-spacing: -.01em }
.brand svg { width: 1.75rem; fill: none; stroke: var(--accent); stroke-width: 1.6;
  stroke-linejoin: round; stroke-linecap: round }
main { padding: 1.5rem; margin-bottom: 3rem; background: var(--surface);
  border: 1px solid var(--line); border-radius: 8px; overflow-wrap: anywhere }
main > :last-child, form > :last-child { margin-bottom: 0 }
h1 { margin: 0 0 1rem; font-size: 1.5rem; line-height: 1.25; letter-spacing: -.01em }
p { margin: 0 0 1rem }
label { display: block; margin-bottom: .25rem; font-size: .875rem; font-weight: 600 }
input, button { width: 100%; min-height: 2.75rem; font: inherit; color: inherit;
  border-radius: 6px }
input { margin-bottom: 1rem; padding: .375rem .75rem; background: var(--surface);
  border: 1px solid var(--edge) }
input[readonly] { background: var(--raised); border-color: var(--line) }
button { margin: .5rem 0 1rem; padding: .25rem 1rem; font-weight: 500; cursor: pointer;
  color: var(--on-accent); background: var(--accent); border: 1px solid var(--accent) }
button:hover { filter: brightness(1.12) }
code, output { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
  monospace; font-size: .875em }
output { display: block; margin-bottom: 1rem; padding: 1rem; font-size: 1.0625rem;
  background: var(--raised); border-radius: 6px; user-select: all }
.or { display: flex; align-items: center; gap: .75rem; margin: 1.5rem 0 1rem;
  color: var(--quiet); font-size: .875rem }
.or::before, .or::after { content: ""; flex: 1; border-top: 1px solid var(--line) }
.provider { display: block; margin-bottom: .75rem; padding: .5rem 1rem; text-align: center;
  color: inherit; text-decoration: none; border: 1px solid var(--edge); border-radius: 6px }
.provider:hover { background: var(--raised) }
.provider b { display: block; font-weight: 500 }
.quiet { color: var(--quiet); font-size: .875rem }
[role=alert] { padding: .75rem 1rem; border-left: 4px solid var(--danger);
  background: var(--danger-ground); border-radius: 4px }
"""
_BOX: Final = (
    "M3 8.2 12 3l9 5.2v7.6L12 21l-9-5.2z M3 8.2l9 5.2 9-5.2 M12 13.4V21 M7.5 5.6l9 5.2v3.4"
)
_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def headers_with_form(uri: str) -> dict[str, str]:
    """Return the headers of a page; `uri` is the final target of its form, if on another host.

    The content security policy must contain the target, because browsers apply `form-action` also
    to the redirects after a form was sent.
    """
    if not uri:
        return dict(HEADERS)
    # The policy's grammar has no IPv6 addresses (CSP3 §2.3.1).
    scheme, _, host, *_ = uri.split("/")
    source = scheme if host.startswith("[") else f"{scheme}//{host}"
    policy = HEADERS["Content-Security-Policy"]
    widened = policy.replace("form-action 'self'", f"form-action 'self' {source}")
    return HEADERS | {"Content-Security-Policy": widened}


def redirect_uri(auth_url: str, provider_id: str) -> str:
    """Return the redirect URI of an identity provider.

    Each provider has its own URI, so that the answer of one provider cannot be passed off as the
    answer of another (RFC 9700 §4.4).
    """
    return f"{auth_url}{CALLBACK_PATH}/{provider_id}"


class ProviderChoice(NamedTuple):
    """An identity provider that the sign-in page offers."""

    id: str
    name: str
    host: str
    """Host of the provider's issuer URL, by which a person recognizes the provider."""


def sign_in_page(
    hidden: str, email: str = "", complaint: str = "", providers: Sequence[ProviderChoice] = ()
) -> str:
    """Return the page that asks for e-mail address and password, and offers identity providers.

    `hidden` is the sealed form, `complaint` an error message to show.
    """
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
</form>{_choices(hidden, providers)}""",
    )


def _choices(hidden: str, providers: Sequence[ProviderChoice]) -> str:
    # Links, not forms: `form-action` would forbid the redirect to the provider.
    hrefs = [f"{PROVIDER_PATH}?{urlencode({'id': each.id, 'form': hidden})}" for each in providers]
    links = [
        f"""<a class="provider" href="{escape(href)}">
<b>Sign in with {escape(each.name)}</b> <span class="quiet">{escape(each.host)}</span></a>"""
        for each, href in zip(providers, hrefs, strict=True)
    ]
    return "\n".join(["", '<p class="or">or</p>', *links]) if links else ""


def new_password_page(hidden: str, email: str, complaint: str = "") -> str:
    """Return the page on which a person replaces a one-time password; see `sign_in_page`."""
    return _page(
        "Choose a password",
        f"""{_alert(complaint)}<p>The password you were given works only this once.
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
    """Return the page that shows the code, for the person to copy to the command."""
    return _page(
        "Your code",
        f"""<p>Copy this code to the command that waits for it. It is good for five minutes
and for one attempt.</p>
<output id="code">{escape(code)}</output>
<p class="quiet">If no command of yours asked for it, close this page.</p>""",
    )


def refusal_page(code: str, words: str) -> str:
    """Return the page that tells why sign-in is not possible: an error code and a message."""
    return _page(
        "Cannot sign in",
        f"""{_alert(f"{words}.")}<p class="quiet">Error: <code>{escape(code)}</code></p>""",
    )


def _alert(words: str) -> str:
    return f'<p role="alert">{escape(words)}</p>\n' if words else ""


def _page(title: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · Entrepot</title>
<style>{_STYLE}</style>
</head>
<body>
<div class="inside">
<header>
<p class="brand"><svg viewBox="0 0 24 24" aria-hidden="true"><path d="{_BOX}"/></svg> Entrepot</p>
</header>
<main>
<h1>{title}</h1>
{body}
</main>
</div>
</body>
</html>
"""
