"""One request to an upstream: authenticate as the upstream requires, and follow redirects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from cloudcore.clock import Clock
from cloudcore.outbound.destinations import NotAllowed, check_url
from cloudcore.outbound.http_client import HttpAnswer, HttpClient
from cloudcore.outbound.http_connection import RequestFailed
from registry.upstream.authentication import Tokens, read_challenges
from registry.upstream.base import (
    HiddenUpstream,
    NotUpstream,
    Remote,
    UpstreamBroken,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamUnreachable,
)
from registry.upstream.response_headers import failure_of, failure_of_status, origin_name

MAX_REDIRECTS: Final = 5
ANSWER_SECONDS: Final = 60
"""Seconds until the response's head must have arrived, with token request and redirects."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MISSING: Final = frozenset({404, 410})
_UNAUTHORIZED: Final = 401
_SHORT: Final = 16 * 1024


class Request(NamedTuple):
    """A request to an upstream, without authorization."""

    method: str
    path: str
    headers: Mapping[str, str]
    scope: str
    """Scope of the token to request; empty for a token without a scope."""
    expected: frozenset[int]
    """The statuses of a usable response; others are failures."""


class Exchange:
    """Sends requests to upstreams, with authorization; one per process."""

    def __init__(self, http: HttpClient, clock: Clock, answer_seconds: float) -> None:
        self._http = http
        self._clock = clock
        self._answer_seconds = answer_seconds
        self._tokens = Tokens(http, clock)

    @asynccontextmanager
    async def ask(self, remote: Remote, request: Request) -> AsyncIterator[HttpAnswer]:
        """Send a request; yield the response if it has an expected status.

        Errors of the caller's own block pass unchanged.

        Raises:
            NotUpstream: the upstream lacks the content.
            HiddenUpstream: the upstream lacks the content, or hides it.
            UpstreamFailed: there is no usable response.

        """
        opened = self._opened(remote, request)
        try:
            async with asyncio.timeout(self._answer_seconds):
                answer = await opened.__aenter__()
        except TimeoutError:
            seconds = self._answer_seconds
            words = f"{origin_name(remote.origin)} did not answer within {seconds:g} seconds"
            raise UpstreamUnreachable(words) from None
        except NotAllowed as error:
            failure = UpstreamUnreachable(f"{origin_name(remote.origin)} may not be asked: {error}")
            failure.stage = "dns"
            raise failure from None
        except RequestFailed as error:
            raise failure_of(origin_name(remote.origin), error) from None
        try:
            yield answer
        finally:
            await opened.__aexit__(None, None, None)

    @asynccontextmanager
    async def _opened(self, remote: Remote, request: Request) -> AsyncIterator[HttpAnswer]:
        url = remote.origin + request.path
        authorization = await self._tokens.known(remote, request.scope)
        for attempt in (1, 2):
            headers = _with(request.headers, authorization)
            async with self._http.request(request.method, url, headers) as answer:
                status = answer.head.status
                if status in _REDIRECTS:
                    await _drain(answer)
                    break
                if status != _UNAUTHORIZED:
                    self._check(answer, origin_name(remote.origin), request)
                    yield answer
                    return
                await _drain(answer)
                challenges = answer.head.all("www-authenticate")
            refused = authorization
            if attempt == 1:
                authorization = await self._tokens.renewed(
                    remote, request.scope, challenges, refused
                )
            if authorization == refused:  # a realm may issue the same token again
                raise _refusal(remote, request, challenges)
        async with self._followed(url, answer, request, authorization) as answer:
            yield answer

    @asynccontextmanager
    async def _followed(
        self, url: str, redirect: HttpAnswer, request: Request, authorization: str | None
    ) -> AsyncIterator[HttpAnswer]:
        """Follow redirects; after a redirect to another origin, send no authorization."""
        upstream = check_url(url, self._http.allowed).origin
        answer = redirect
        for _ in range(MAX_REDIRECTS):
            source = origin_name(check_url(url, self._http.allowed).origin)
            url = self._target(url, answer, source)
            destination = check_url(url, self._http.allowed)
            if destination.origin != upstream:
                authorization = None
            headers = _with(request.headers, authorization)
            try:
                async with self._http.request(request.method, url, headers) as answer:
                    if answer.head.status in _REDIRECTS:
                        await _drain(answer)
                        continue
                    is_away = destination.origin != upstream
                    self._check(answer, destination.authority, request, is_away=is_away)
                    yield answer
                    return
            except NotAllowed as error:
                raise UpstreamBroken(
                    f"{source} redirects to where may not be asked: {error}"
                ) from None
            except RequestFailed as error:
                raise failure_of(destination.authority, error) from None
        raise UpstreamBroken(f"{origin_name(upstream)} redirects more than {MAX_REDIRECTS} times")

    def _target(self, url: str, answer: HttpAnswer, source: str) -> str:
        location = answer.head.get("location")
        if not location:
            raise UpstreamBroken(f"{source} redirects to nowhere")
        try:
            target = urljoin(url, location)
            target = urlsplit(target)._replace(fragment="").geturl()
            check_url(target, self._http.allowed)
        except ValueError as error:
            words = error if isinstance(error, NotAllowed) else "no URL"
            raise UpstreamBroken(f"{source} redirects to where may not be asked: {words}") from None
        return target

    def _check(
        self, answer: HttpAnswer, host: str, request: Request, *, is_away: bool = False
    ) -> None:
        status = answer.head.status
        if status in request.expected:
            return
        failure: UpstreamFailed = failure_of_status(host, answer.head, self._clock())
        if is_away and isinstance(failure, UpstreamRefused):
            # An expired URL of the upstream's storage: another credential would not help.
            failure = UpstreamBroken(str(failure))
            failure.http_status = status
        elif not is_away and status in _MISSING:
            raise NotUpstream(f"{host} does not have it")
        elif isinstance(failure, UpstreamRefused):
            failure.is_of_repository = bool(request.scope)
        raise failure


def _refusal(
    remote: Remote, request: Request, challenges: Sequence[str]
) -> UpstreamRefused | HiddenUpstream:
    """Return the error for a 401 that no other authorization would change."""
    host = origin_name(remote.origin)
    if _is_hidden(remote, request, challenges):
        return HiddenUpstream(f"{host} does not have it, or does not show it")
    failure = UpstreamRefused(f"{host} refuses the request (status 401)")
    failure.http_status = _UNAUTHORIZED
    failure.is_of_repository = _errors(challenges) == {""} and bool(request.scope)
    return failure


def _is_hidden(remote: Remote, request: Request, challenges: Sequence[str]) -> bool:
    """Return True if a token was refused because of the requested content, not as invalid.

    The realm issued the token, so the credential is right. Docker Hub responds with
    ``insufficient_scope``, even with a credential. Others give no error, which counts as hidden
    only for anonymous requests.
    """
    if not request.scope:
        return False
    errors = _errors(challenges)
    return errors == {"insufficient_scope"} or (remote.credential is None and errors == {""})


def _errors(challenges: Sequence[str]) -> set[str]:
    """Return the error codes in the bearer challenges of a response that refused a token."""
    return {each.error for each in read_challenges(challenges) if each.scheme == "bearer"}


def _with(headers: Mapping[str, str], authorization: str | None) -> Mapping[str, str]:
    return {**headers, "Authorization": authorization} if authorization else headers


async def _drain(answer: HttpAnswer) -> None:
    """Read a short body and discard it, so that the connection can be reused."""
    if (answer.head.length or 0) <= _SHORT:
        with suppress(RequestFailed):
            await answer.read(_SHORT)
