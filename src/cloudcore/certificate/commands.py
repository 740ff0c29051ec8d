"""``entrepot certificates``: manage TLS certificates."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, argument, method_command
from cloudcore.errors import InvalidInput

_NAME: Final = argument("name", "1 to 63 of a-z 0-9 . _ -; fixed", metavar="NAME")
_TAGS: Final = Option("tags", "a tag of the certificate", "tags")
_ROOT: Final = "/v1/certificate-authorities/root"
_SETTINGS: Final = "/v1/certificate-settings"
_ALGORITHMS: Final = ("ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-4096")
_CHALLENGES: Final = (
    "domain",
    Cell("PUBLISH CNAME AT", "cname_record_name", "whole"),
    Cell("POINTING TO", "expected_cname", "whole"),
    "verified_at",
)


def _show_challenges(run: Invocation) -> bool:
    """Show the DNS records to publish, and all faults; return False if there is a fault."""
    found = run.record
    run.show_rows(found["challenges"], _CHALLENGES)
    faults = [
        *found["faults"],
        *(fault for challenge in found["challenges"] for fault in challenge["faults"]),
    ]
    for fault in faults:
        run.warn(f"{fault['code']}: {fault['message']}")
    return not faults


def _show_root(run: Invocation) -> None:
    """Print the root certificate of the install's own authority in PEM, ready for a trust file."""
    with TemporaryFile() as file:
        run.client.receive_file(_ROOT, file)
        file.seek(0)
        text = file.read().decode("ascii")
    run.say_lines(text.splitlines(), {"root_pem": text})


def _export_private_key(run: Invocation) -> None:
    """Write a copy of the private key to a new file of mode 0600, or to standard output."""
    name = run.values["file"]
    if name == "-":  # the standard output
        exported = run.client.create(f"{run.path}/export-private-key")
        run.say_lines(exported["private_key_pem"].splitlines(), exported)
        return
    # Open the file first: the key can be exported only once, so nothing must fail afterwards.
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidInput(f"{name!r} exists; name a file that does not") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        try:
            file.write(run.client.create(f"{run.path}/export-private-key")["private_key_pem"])
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    run.say(f"Wrote the private key to {name}; the platform does not give it again")


def _settings(run: Invocation) -> None:
    method = "PATCH" if run.values else "GET"
    run.show(run.client.call(method, _SETTINGS, run.values or None)["certificate_settings"])


CERTIFICATE: Final = Noun(
    noun="certificates",
    words="certificates of TLS, issued and renewed here or uploaded",
    name_filter="name",
    columns=("name", "status", "domains", "source", "expires_at", "id"),
    create=(
        _NAME,
        Option("domains", "such as www.example.com or *.example.com", "texts", "domain"),
        Option("key_algorithm", "of its key (ecdsa-p256)", choices=_ALGORITHMS),
        Option(
            "csr_pem",
            "a signing request in PEM, to keep the key to yourself; it has the domains",
            "file",
            "csr",
        ),
        _TAGS,
    ),
    created="{name} is {status}; 'entrepot certificates challenges {name}' says what it waits for",
    update=(_TAGS,),
    delete=Deletion(
        words="delete a certificate and its key; what was issued stays valid",
        question="Delete the certificate {name} and its key?",
    ),
    commands=(
        Command(
            verb="upload",
            words="upload a certificate of another authority",
            path="upload",
            is_on_list=True,
            takes_key=True,
            options=(
                _NAME,
                Option("certificate_pem", "in PEM", "file", "certificate", is_required=True),
                Option("private_key_pem", "its key in PEM", "file", "key", is_required=True),
                Option("chain_pem", "its issuers in PEM, the nearest first", "file", "chain"),
                _TAGS,
            ),
            answer="certificate",
            said="Uploaded {name}",
        ),
        Command(
            verb="challenges",
            words="show what the owners of its domains publish in DNS, and what is wrong",
            run=_show_challenges,
        ),
        method_command(
            "recheck",
            "look at its domains now; try one anew that has failed",
            "certificate",
            "Checking {name}",
            path="challenges/recheck",
        ),
        method_command(
            "revoke",
            "revoke a certificate, so that nobody trusts it any more",
            "certificate",
            "Revoking {name}; 'entrepot certificates show {name}' says when it is",
        )._replace(question="Revoke the certificate {name}?"),
        Command(
            verb="export-private-key",
            words="write a copy of a key that was made here to a new file; once per key",
            options=(argument("file", "- is the standard output", metavar="FILE"),),
            run=_export_private_key,
        ),
        Command(
            verb="settings",
            words="show or change the account's settings of certificates",
            is_on_list=True,
            options=(
                Option("private_key_export", "let keys that were made here be had", "boolean"),
            ),
            run=_settings,
        ),
        Command(
            verb="authority",
            words="show the root of the install's own authority in PEM, for clients to trust",
            is_on_list=True,
            run=_show_root,
        ),
    ),
)
COMMANDS: Final = (CERTIFICATE,)
