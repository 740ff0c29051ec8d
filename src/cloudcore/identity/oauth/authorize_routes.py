"""``/v1/oauth/authorize``: sign a person in and issue an authorization code (RFC 6749 §4.1).

There are two clients. The command line gets the code by a redirect to a port where it listens on
the browser's machine (RFC 8252 §7.3), or the person copies the code from the page. The console gets
the code by a redirect. Errors are shown as pages, except that errors in the client's request are
sent to the client by a redirect (`sign_in.AuthorizationRefused`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

import msgspec
from litestar import MediaType, Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.params import FromPath
from msgspec import Meta

from cloudcore import errors
from cloudcore.db.base import ConstraintViolated
from cloudcore.identity.needs import IdentityNeeds
from cloudcore.identity.oauth import attempts, forms, pages, sign_in
from cloudcore.identity.oauth.attempts import KnownBrowser
from cloudcore.identity.oauth.forms import Form
from cloudcore.identity.oauth.pages import CALLBACK_PATH, PATH, PROVIDER_PATH
from cloudcore.identity.oauth.sessions import OUT_OF_BAND
from cloudcore.identity.oauth.sign_in import AuthorizationRefused, SignInForm
from cloudcore.identity.oidc import sign_in as provider_sign_in
from cloudcore.identity.rows.users import User
from cloudcore.serving.asgi import header_values
from cloudcore.web.app import Context, Needs
from cloudcore.web.context import RequestContext

COOKIE: Final = "entrepot_sign_in"
PROVIDER_COOKIE: Final = "entrepot_provider_sign_in"

_REFUSALS: Final = (errors.Unauthenticated, errors.RateLimited, errors.Unavailable)

Answer = Response[str]


class AuthorizationQuery(msgspec.Struct):
    """The parameters of an authorization request (RFC 7636 §4.3)."""

    response_type: Literal["code"]
    client_id: Literal["cli", "console"]
    redirect_uri: str
    """For the command `http://127.0.0.1:PORT/callback` or `http://[::1]:PORT/callback`, any port,
    or `urn:ietf:wg:oauth:2.0:oob`, which shows the code; for the console, its own address."""
    code_challenge: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{43}$(?!\\n)")]
    code_challenge_method: Literal["S256"]
    state: str = ""
    """Returned in the redirect."""


class ProviderQuery(msgspec.Struct):
    """The parameters of a link to an identity provider."""

    id: str
    form: str
    """The sealed sign-in form of the page."""


class ProviderAnswer(msgspec.Struct):
    """The answer of an identity provider (RFC 6749 §4.1.2, RFC 9207)."""

    state: str
    code: str = ""
    iss: str = ""
    error: str = ""
    error_description: str = ""


class SentForm(msgspec.Struct):
    """The fields that the pages send: e-mail address and password, or the new password twice."""

    form: str
    email: str = ""
    password: str = ""
    new_password: str = ""
    repeated_password: str = ""


def _with_error_pages(answer: Callable[..., Awaitable[Answer]]) -> Callable[..., Awaitable[Answer]]:
    """Wrap a handler so that a refusal becomes an error page."""

    @wraps(answer)
    async def answered(**given: Any) -> Answer:  # noqa: ANN401 - as of `answer`
        try:
            return await answer(**given)
        except AuthorizationRefused as error:
            return _redirect(error.location)
        except errors.InvalidInput as error:
            return _refused(error, lambda words: pages.refusal_page("invalid_request", words))
        except errors.RateLimited as error:
            return _refused(error, lambda words: pages.refusal_page("rate_limited", words))
        except errors.Unavailable as error:
            words = f"The service cannot do it now. Try again in {error.retry_after} seconds"
            page = _page(503, pages.refusal_page("temporarily_unavailable", words))
            page.headers["Retry-After"] = str(error.retry_after)
            return page
        except errors.PlatformError as error:
            return _refused(error, lambda words: pages.refusal_page("access_denied", words))
        except ConstraintViolated:
            # A row that was checked before was deleted or changed meanwhile.
            words = "What this sign-in needs was changed meanwhile; open the link again"
            return _page(403, pages.refusal_page("access_denied", words))

    return answered


def _public(*statuses_of_pages: int, **opt: object) -> dict[str, object]:
    """Return the ``opt`` of a public route that answers with pages of these statuses."""
    return {"action": None, "public": True, "pages": statuses_of_pages, **opt}


@get(PATH, opt=_public(200, 303, 400, 503, query=AuthorizationQuery, statuses=(303,)))
@_with_error_pages
async def show_sign_in(request: Request[Any, Any, Any], ctx: Context) -> Response[str]:
    """Show the sign-in page to a person for whom the command line or the console requests a code.

    The query is that of RFC 7636 with a `redirect_uri` of the client and
    `code_challenge_method=S256`. Any other query is refused: by a redirect with `error` (RFC 6749
    §4.1.2.1) if `client_id` and `redirect_uri` are right, else by a page.
    """
    asked = sign_in.read_request(ctx.settings.signed_in_at, request.scope["query_string"])
    nonce = sign_in.known_nonce(request.cookies.get(COOKIE)) or sign_in.new_nonce()
    form = sign_in.begin(ctx, asked, nonce)
    providers = await provider_sign_in.list_choices(ctx)
    shown = pages.sign_in_page(form.seal(ctx.keyring), providers=providers)
    page = _page(200, shown, _external_target(ctx, form))
    page.set_cookie(_cookie(ctx, COOKIE, nonce))
    return page


@post(
    PATH,
    status_code=200,
    request_max_body_size=forms.MAX_FORM_BYTES,
    opt=_public(200, 303, 400, 403, 429, 503, form=SentForm, statuses=(303, 403, 429)),
)
@_with_error_pages
async def sign_in_by_password(request: Request[Any, Any, Any], ctx: Context) -> Response[str]:
    """Check a person's password and return a code, or ask for a new password first.

    The code is sent to the command or the console by a redirect, or shown to be copied.

    In five minutes, a client address has ten failed attempts at each e-mail address, thirty
    failed attempts in total, and thirty attempts of any kind at each e-mail address; further
    attempts get 429. A browser in which the person has signed in before has its own ten attempts.
    """
    sent = forms.parse_form(header_values(request.scope, b"content-type"), await request.body())
    nonce = sign_in.known_nonce(request.cookies.get(COOKIE))
    form = sign_in.resume(ctx, sent.get("form", ""), nonce)
    assert nonce is not None
    browser = attempts.read_known_browser(ctx, request.cookies.get(attempts.COOKIE))
    if form.email:
        return await _choose_password(ctx, form, sent, browser)
    return await _check_password(ctx, form, sent, nonce, browser)


@get(
    PROVIDER_PATH,
    status_code=303,
    opt=_public(303, 400, 403, 429, 503, query=ProviderQuery, statuses=(400, 403, 429)),
)
@_with_error_pages
async def sign_in_at_provider(
    request: Request[Any, Any, Any], ctx: Context, needs: Needs[IdentityNeeds]
) -> Response[str]:
    """Redirect a person from the sign-in page to an identity provider.

    A client address may begin thirty such sign-ins in five minutes; further ones get 429.
    """
    query = forms.parse_parameters(request.scope["query_string"])
    nonce = sign_in.known_nonce(request.cookies.get(COOKIE))
    form = sign_in.resume(ctx, query.get("form", ""), nonce)
    to, cookie = await provider_sign_in.begin(ctx, needs, form, query.get("id", ""))
    page = _redirect(to)
    page.set_cookie(_provider_cookie(ctx, cookie, provider_sign_in.PENDING_SECONDS))
    return page


@get(
    CALLBACK_PATH + "/{provider_id:str}",
    opt=_public(200, 303, 400, 403, 503, query=ProviderAnswer, statuses=(303, 400, 403)),
)
@_with_error_pages
async def finish_sign_in_at_provider(
    provider_id: FromPath[str],
    request: Request[Any, Any, Any],
    ctx: Context,
    needs: Needs[IdentityNeeds],
) -> Response[str]:
    """Accept the answer of an identity provider, and return a code as after a password.

    An answer is accepted once, only in the browser that was sent to the provider, and only at the
    callback URL of that provider.
    """
    query = forms.parse_parameters(request.scope["query_string"])
    cookie = request.cookies.get(PROVIDER_COOKIE)
    form, user, code = await provider_sign_in.finish(ctx, needs, cookie, provider_id, query)
    page = _answer_with_code(ctx, form, code, user, None)
    page.set_cookie(_provider_cookie(ctx, "", 0))
    return page


def _provider_cookie(ctx: RequestContext, value: str, max_age: int) -> Cookie:
    """Return the cookie of a pending sign-in at a provider.

    It is not `SameSite=Strict`, so that the browser sends it when the provider redirects back.
    """
    cookie = _cookie(ctx, PROVIDER_COOKIE, value, max_age)
    cookie.samesite = "lax"
    return cookie


async def _check_password(
    ctx: RequestContext, form: SignInForm, sent: Form, nonce: str, browser: KnownBrowser | None
) -> Answer:
    email = sent.get("email", "")
    try:
        user = await sign_in.check_password(ctx, email, sent.get("password", ""), browser)
        code = "" if user.must_change_password else await sign_in.give_code(ctx, form, user)
    except _REFUSALS as error:
        again = sign_in.renew(ctx, form, nonce).seal(ctx.keyring)
        providers = await provider_sign_in.list_choices(ctx)
        return _refused(
            error,
            lambda words: pages.sign_in_page(again, email, f"{words}.", providers),
            _external_target(ctx, form),
        )
    if user.must_change_password:
        renewed = sign_in.renew(ctx, form, nonce, user)
        page = pages.new_password_page(renewed.seal(ctx.keyring), user.email)
        return _page(200, page, _external_target(ctx, form))
    return _answer_with_code(ctx, form, code, user, browser)


async def _choose_password(
    ctx: RequestContext, form: SignInForm, sent: Form, browser: KnownBrowser | None
) -> Answer:
    chosen = sent.get("new_password", ""), sent.get("repeated_password", "")
    try:
        user, code = await sign_in.choose_password(ctx, form, *chosen)
    except (errors.InvalidInput, *_REFUSALS) as error:
        again = form.seal(ctx.keyring)
        return _refused(
            error,
            lambda words: pages.new_password_page(again, form.email, f"{words}."),
            _external_target(ctx, form),
        )
    return _answer_with_code(ctx, form, code, user, browser)


def _refused(error: errors.PlatformError, page: Callable[[str], str], leads_to: str = "") -> Answer:
    """Return the answer to a refusal; `page` makes the page from the message.

    `leads_to` is the final target of the page's form, if on another host.
    """
    match error:
        case errors.RateLimited():
            status, words = 429, f"Too many attempts. Try again in {error.retry_after} seconds"
        case errors.Unavailable():
            words = f"Too many people are signing in. Try again in {error.retry_after} seconds"
            status = 503
        case _:
            status = 400 if isinstance(error, errors.InvalidInput) else 403
            words = error.message[:1].upper() + error.message[1:]
    answer = _page(status, page(words), leads_to)
    if isinstance(error, errors.RateLimited | errors.Unavailable):
        answer.headers["Retry-After"] = str(error.retry_after)
    return answer


def _answer_with_code(
    ctx: RequestContext, form: SignInForm, code: str, user: User, browser: KnownBrowser | None
) -> Answer:
    """Show the code or redirect with it; set the known-browser cookie."""
    if form.destination.redirect_uri == OUT_OF_BAND:
        answer = _page(200, pages.code_page(code))
    else:
        query = urlencode({"code": code} | ({"state": form.state} if form.state else {}))
        answer = _redirect(f"{form.destination.redirect_uri}?{query}")
    known = attempts.known_browser_cookie(ctx, user.id, browser)
    answer.set_cookie(_cookie(ctx, attempts.COOKIE, known, attempts.LIFETIME_SECONDS))
    return answer


def _redirect(to: str) -> Answer:
    page = _page(303, "")
    page.headers["Location"] = to
    return page


def _page(status: int, page: str, leads_to: str = "") -> Answer:
    """Return an answer; `leads_to` is the final target of the page's form, if on another host."""
    headers = pages.headers_with_form(leads_to)
    return Response(page, status_code=status, media_type=MediaType.HTML, headers=headers)


def _external_target(ctx: RequestContext, form: SignInForm) -> str:
    """Return the final target of a form if it is on another host, else an empty string."""
    uri = form.destination.redirect_uri
    is_here = uri == OUT_OF_BAND or uri.startswith(f"{ctx.settings.auth_url}/")
    return "" if is_here else uri


def _cookie(ctx: RequestContext, name: str, value: str, max_age: int | None = None) -> Cookie:
    """Return a cookie for the sign-in pages. Without `max_age` (seconds) it is a session cookie."""
    return Cookie(
        name,
        value=value,
        path=PATH,
        max_age=max_age,
        httponly=True,
        samesite="strict",
        secure=ctx.settings.auth_url.startswith("https:"),
    )
