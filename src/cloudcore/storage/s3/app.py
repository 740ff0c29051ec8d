"""The ASGI application of the S3 endpoint: authenticate, authorize, call, and answer in XML.

The endpoint accepts only version 4 signatures, of a request or of a form's policy, and no bearer
tokens. Each operation has the IAM action of the same operation on ``/v1``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final
from uuid import uuid4

from cloudcore.clock import MICROSECONDS
from cloudcore.errors import AccessDenied, OutOfMemory, PlatformError
from cloudcore.iam.audit import SIGN_IN
from cloudcore.iam.decision import could_allow
from cloudcore.iam.principal import SignatureKey, SignatureKeys
from cloudcore.serving.asgi import Receive, Scope, Send, header_values
from cloudcore.serving.clients import source_address
from cloudcore.storage.bucket import SERVICE
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.s3 import answers, signature
from cloudcore.storage.s3.bucket_calls import answer_preflight, with_cors
from cloudcore.storage.s3.call import S3Call
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.forms import read_form
from cloudcore.storage.s3.operations import Operation, operation_of
from cloudcore.storage.s3.post_calls import form_request
from cloudcore.storage.s3.requests import S3Request, read_request
from cloudcore.web.context import Platform, RequestContext
from cloudcore.web.context import refusal as denied

_log = logging.getLogger(__name__)

Proof = Callable[[str], signature.RequestSigningKey]
"""From the secret of the claimed access key, returns the signing key. Raises `S3Error` if the
signature was not made with this secret."""


_GLOBAL_REGION: Final = frozenset(("us-east-1",))


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Needs:
    """The dependencies of the endpoint."""

    platform: Platform
    storage: StorageNeeds
    keys: SignatureKeys
    host: str = ""
    """The endpoint's host, of which buckets are subdomains; empty if buckets are in paths only."""
    any_region: bool = False
    """Accept signatures for any region."""


class S3Endpoint:
    """The ASGI application."""

    def __init__(self, needs: S3Needs) -> None:
        """Serve the buckets of `needs`."""
        self._needs = needs
        self._portions = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; errors have S3's form."""
        request_id = str(scope.get("state", {}).get("request_id") or uuid4())
        answering = self._answered(scope, receive, request_id)
        if answers.is_copy(scope):
            await answers.send_when_copied(scope, send, answering, request_id)
        else:
            await answers.send_answer(scope, send, await answering, request_id)

    async def _answered(self, scope: Scope, receive: Receive, request_id: str) -> answers.Answer:
        resource = scope["raw_path"].decode("latin-1")
        request: S3Request | None = None
        try:
            request = read_request(
                scope["method"],
                scope["raw_path"],
                scope["query_string"],
                scope["headers"],
                self._needs.host,
            )
            answer = await self._answer(request, scope, receive, request_id)
        except S3Error as error:
            answer = answers.refusal(error, resource, request_id)
        except PlatformError as error:
            if (found := answers.s3_error(error)).status >= 500:
                _log.warning("%s", error.message, extra={"request_id": request_id})
            answer = answers.refusal(found, resource, request_id)
        except MemoryError:
            _log.warning("no memory", exc_info=True, extra={"request_id": request_id})
            answer = answers.refusal(answers.s3_error(OutOfMemory()), resource, request_id)
        except Exception:  # noqa: BLE001 - a bug is logged, and its details are not sent
            _log.exception("unexpected failure", extra={"request_id": request_id})
            failure = S3Error("InternalError", "We encountered an internal error.")
            answer = answers.refusal(failure, resource, request_id)
        if request is not None:
            try:
                answer = await with_cors(self._needs.storage, self._region, request, answer)
            except PlatformError as error:  # the answer stands, but no page may read it
                _log.warning("%s", error.message)
        return answer

    @property
    def _region(self) -> str:
        return self._needs.platform.settings.region

    async def _answer(
        self, request: S3Request, scope: Scope, receive: Receive, request_id: str
    ) -> answers.Answer:
        if request.method == "OPTIONS":
            return await answer_preflight(self._needs.storage, self._region, request)
        signed = signature.SignedRequest(
            scope["method"], scope["raw_path"], scope["query_string"], scope["headers"]
        )
        operation = operation_of(request)
        regions = signature.Regions(self._region, self._other_regions(operation))
        form = None
        if operation.takes_form:
            content_type = request.headers.get("content-type", "")
            form, scope, receive = await read_form(scope, receive, content_type)
            request = form_request(request, form)
            claim = signature.read_form_claim(form.fields, regions)
            proof: Proof = partial(signature.verify_text, form.fields["policy"], claim)
        else:
            claim = signature.read_claim(signed, regions)
            proof = partial(signature.verify, signed, claim)
        action = f"{SERVICE}:{operation.action}"
        ctx = self._context(action, scope, request_id, is_change=operation.is_change)
        key = await self._authenticate(ctx, claim, proof, scope)
        await self._admit(ctx, action, request)
        call = S3Call(
            ctx,
            self._needs.storage,
            request,
            claim,
            key,
            scope,
            receive,
            self._portions,
            any_region=self._needs.any_region,
            form=form,
        )
        try:
            if operation.finds_bucket:
                await call.find_bucket()
            answer = await operation.handler(call)
        except AccessDenied:
            assert ctx.caller is not None
            ctx.note_refusal_of(ctx.caller)
            raise
        ctx.note_answered(SERVICE)
        return answer

    def _context(
        self, action: str, scope: Scope, request_id: str, *, is_change: bool
    ) -> RequestContext:
        platform = self._needs.platform
        client, forwarded = scope.get("client"), header_values(scope, b"x-forwarded-for")
        return RequestContext(
            platform,
            request_id=request_id,
            source_ip=source_address(
                client[0] if client else None, forwarded, platform.settings.trusted_proxies
            ),
            action=action,
            user_agent=next(iter(header_values(scope, b"user-agent")), None),
            is_change=is_change,
        )

    def _other_regions(self, operation: Operation) -> frozenset[str] | None:
        """Return the regions that a signature may name besides the install's; None means any."""
        if self._needs.any_region:
            return None
        return _GLOBAL_REGION if operation.is_global else frozenset()

    async def _authenticate(
        self, ctx: RequestContext, claim: signature.SignatureClaim, proof: Proof, scope: Scope
    ) -> signature.RequestSigningKey:
        """Verify the signature, store the caller in `ctx`, and return the signing key.

        Raise `S3Error` if the signature is wrong or out of time, or if the access key or its
        session token does not exist.
        """
        now = datetime.fromtimestamp(ctx.clock() / MICROSECONDS, UTC)
        signature.check_time(claim, now)
        found = await self._needs.keys.find(claim.access_key_id)
        if found is None:
            raise S3Error(
                "InvalidAccessKeyId",
                "The AWS Access Key Id you provided does not exist in our records.",
                details={"AWSAccessKeyId": claim.access_key_id},
            )
        principal = found.principal
        try:
            key = _verified(proof, claim, found)
        except S3Error:  # counted for the audit log of the key's account
            ctx.note_refusal(
                SIGN_IN,
                principal=principal.crn,
                source=principal.source,
                owner_id=principal.account_id or "",
                resource=principal.crn,
            )
            raise
        ctx.caller = principal
        log = scope.setdefault("state", {})
        log["principal"], log["source"] = principal.crn, principal.source
        return key

    async def _admit(self, ctx: RequestContext, action: str, request: S3Request) -> None:
        """Load the caller's policies; refuse the request before any lookup if none could allow it.

        Raise `AccessDenied` if no policy allows the action on any resource, `S3Error` if the
        request says that a bucket belongs to another account.
        """
        caller = ctx.caller
        assert caller is not None
        ctx.policies = await self._needs.platform.authenticator.policies_of(caller)
        if not could_allow(ctx.policies, action, ctx.source_ip, ctx.clock()):
            ctx.note_refusal_of(caller)
            raise denied(action)
        for name in ("x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"):
            if request.headers.get(name, caller.account_id) != caller.account_id:
                raise S3Error("AccessDenied", "Access Denied")


def _verified(
    proof: Proof, claim: signature.SignatureClaim, found: SignatureKey
) -> signature.RequestSigningKey:
    """Verify signature and session token; return the signing key, or raise `S3Error`."""
    key = proof(found.secret)
    if not found.fits_token(claim.security_token):
        raise S3Error("InvalidToken", "The provided token is malformed or otherwise invalid.")
    return key
