"""Be the process that talks to an authority: see `conversing`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from cloudcore.acme.conversing import Proof, Said, Task, hear, tell
from cloudcore.acme.refusals import AcmeRefused, AcmeUnreachable
from cloudcore.acme.session import AcmeSession


def main() -> None:
    """Do the task that standard input tells."""
    task = hear(sys.stdin.buffer, Task)
    try:
        said = Said(chain=_do(task))
    except AcmeRefused as error:
        said = Said(refused=(error.code, str(error) or "it gives no reason", error.domains))
    except (AcmeUnreachable, OSError) as error:
        said = Said(unreachable=str(error) or "it gives no reason")
    tell(sys.stdout.buffer, said)


def _do(task: Task) -> str:
    key = load_pem_private_key(task.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    session = AcmeSession(task.directory, key, task.email)
    if task.certificate:
        session.revoke(task.certificate, task.reason)
        return ""
    return session.order(task.csr, task.kind, _publish)


def _publish(proofs: Sequence[Proof]) -> None:
    tell(sys.stdout.buffer, Said(proofs=tuple(proofs)))
    hear(sys.stdin.buffer, str)


if __name__ == "__main__":
    main()
