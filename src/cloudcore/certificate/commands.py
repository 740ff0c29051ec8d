"""``entrepot certificate``: certificates of TLS."""

from __future__ import annotations

from tempfile import TemporaryFile
from typing import Final

from cloudcore.command_line import Act, Cell, CommandLine, Deletion, Invocation, Noun, Option

_NAME: Final = Option("name", "1 to 63 of a-z 0-9 . _ -; fixed", metavar="NAME", is_argument=True)
_TAGS: Final = Option("tags", "a tag of the certificate", "tags")
_ROOT: Final = "/v1/certificate-authorities/root"
_ALGORITHMS: Final = ("ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-4096")
_CHALLENGES: Final = (
    Cell("DOMAIN", "domain"),
    Cell("PUBLISH CNAME AT", "cname_record_name", "whole"),
    Cell("POINTING TO", "expected_cname", "whole"),
    Cell("VERIFIED", "verified_at", "time"),
)


def _show_challenges(run: Invocation) -> bool:
    """Show what the owners of domains publish; return False if something is wrong with one."""
    found = run.record
    run.show_rows(found["challenges"], _CHALLENGES)
    faults = [
        *found["faults"],
        *(fault for challenge in found["challenges"] for fault in challenge["faults"]),
    ]
    for fault in faults:
        run.warn(f"{fault['code']}: {fault['message']}")
    return not faults


def _show_root(run: Invocation) -> bool:
    """Show the root of the install's own authority in PEM, as a file for clients has it."""
    with TemporaryFile() as file:
        run.client.receive_file(_ROOT, file)
        file.seek(0)
        text = file.read().decode("ascii")
    if run.is_for_program:
        run.show({"root_pem": text})
    else:
        for line in text.splitlines():
            run.say(line)
    return True


CERTIFICATE: Final = Noun(
    noun="certificate",
    words="certificates of TLS, issued and renewed here or uploaded",
    path="/v1/certificates",
    one="certificate",
    many="certificates",
    name_filter="name",
    columns=(
        Cell("NAME", "name"),
        Cell("STATUS", "status"),
        Cell("DOMAINS", "domains"),
        Cell("SOURCE", "source"),
        Cell("EXPIRES", "expires_at", "time"),
        Cell("ID", "id", "whole"),
    ),
    create=(
        _NAME,
        Option("domains", "such as www.example.com or *.example.com", "texts", "domain"),
        Option("key_algorithm", "of its key (ecdsa-p256)", choices=_ALGORITHMS),
        _TAGS,
    ),
    created="{name} is {status}; 'entrepot certificate challenges {name}' says what it waits for",
    update=(_TAGS,),
    delete=Deletion(
        words="delete a certificate and its key; what was issued stays valid",
        question="Delete the certificate {name} and its key?",
    ),
    acts=(
        Act(
            verb="upload",
            words="upload a certificate of another authority",
            path="upload",
            is_of_all=True,
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
        Act(
            verb="challenges",
            words="show what the owners of its domains publish in DNS, and what is wrong",
            run=_show_challenges,
        ),
        Act(
            verb="recheck",
            words="look at its domains now; try one anew that has failed",
            path="challenges/recheck",
            takes_key=True,
            answer="certificate",
            said="Checking {name}",
        ),
        Act(
            verb="revoke",
            words="revoke a certificate, so that nobody trusts it any more",
            path="revoke",
            takes_key=True,
            answer="certificate",
            said="Revoking {name}; 'entrepot certificate show {name}' says when it is",
            question="Revoke the certificate {name}?",
        ),
        Act(
            verb="authority",
            words="show the root of the install's own authority in PEM, for clients to trust",
            is_of_all=True,
            run=_show_root,
        ),
    ),
)


def add_parsers(commands: CommandLine) -> None:
    """Add ``certificate`` and its commands."""
    commands.add_described(CERTIFICATE)
