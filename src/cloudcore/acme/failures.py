"""What an authority's refusals mean, in words for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import josepy.errors
import requests
from acme import errors, messages

from cloudcore.acme.refusals import AcmeRefused, AcmeUnreachable, DomainProblem
from cloudcore.outbound.destinations import NotAllowed
from cloudcore.outbound.failures import RequestFailed

_PASSING: Final = frozenset({"rateLimited", "serverInternal", "badNonce"})
"""Problems that pass by themselves; all others are refusals."""


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turn what the library raises into `AcmeRefused` and `AcmeUnreachable`."""
    try:
        yield
    except messages.Error as error:
        raise _of_problem(error) from None
    except errors.IssuanceError as error:
        raise _of_problem(error.error) from None
    except errors.ValidationError as error:
        raise _of_validation(error) from None
    except errors.TimeoutError:
        raise AcmeUnreachable("it did not decide in time") from None
    except (RequestFailed, NotAllowed) as error:
        raise AcmeUnreachable(str(error)) from None
    except (errors.Error, josepy.errors.Error, requests.RequestException, KeyError) as error:
        words = str(error)[:200] or type(error).__name__
        raise AcmeUnreachable(f"it does not answer as ACME wants it: {words}") from None


def _of_problem(error: messages.Error) -> AcmeRefused | AcmeUnreachable:
    words = error.detail or error.description or error.typ
    for each in error.subproblems or ():
        words += f"; {each.identifier.value if each.identifier else ''}: {each.detail}"
    code = error.code or error.typ
    if code in _PASSING:
        return AcmeUnreachable(words)
    return AcmeRefused(code, words)


def _of_validation(error: errors.ValidationError) -> AcmeRefused:
    found = []
    for authorization in error.failed_authzrs:
        for each in authorization.body.challenges:
            if each.error is not None:
                name = authorization.body.identifier.value
                domain = f"*.{name}" if authorization.body.wildcard else name
                detail = each.error.detail or each.error.typ
                found.append(DomainProblem(domain, each.error.code or each.error.typ, detail))
    words = "; ".join(f"{each.domain}: {each.detail}" for each in found)
    return AcmeRefused(found[0].code if found else "unauthorized", words, tuple(found))
