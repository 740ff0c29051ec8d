"""One request of a browser, with who sends it and all that its answer is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from registry.console.control_plane import ControlPlaneClient
from registry.console.messages import Request, Response, redirect
from registry.console.rendering import Pages
from registry.console.sessions import COOKIE, CookieJar, Session, Sessions, SignedOut
from registry.services.context import ServiceContext

SAID: Final = {
    "repository-created": "The repository is there. Push to it with the lines below.",
    "repository-deleted": "The repository was deleted. What can be restored is listed here.",
    "repository-restored": "The repository is back, with all it held.",
    "image-deleted": "The image was deleted. What can be restored is listed here.",
    "image-restored": "The image is back.",
    "tag-moved": "The tag was moved.",
    "tag-created": "The tag was created.",
    "tag-deleted": "The tag was deleted; its image stays. What can be restored is listed here.",
    "tag-restored": "The tag is back.",
    "pinned": "The image is pinned: no lifecycle rule takes it.",
    "unpinned": "The pin was taken away.",
    "policy-saved": "The policy was saved.",
    "policy-deleted": "The policy was deleted.",
    "run-started": "A run has begun.",
    "settings-saved": "The settings were saved.",
    "rule-created": "The rule was created.",
    "rule-deleted": "The rule was deleted.",
    "collection-started": "The collector is at work.",
    "sign-in-over": "Your sign-in was over already. If you sent a form, sign in and send it again.",
}
"""What a page says about the change that led to it. The address names one of these, and no text."""


@dataclass(frozen=True, slots=True)
class House:
    """What all visits share."""

    pages: Pages
    sessions: Sessions
    jar: CookieJar
    auth_url: str
    storage: ServiceContext
    """To read the configuration of an image that ``/v1`` has shown."""

    @property
    def host(self) -> str:
        """Return the host of image references."""
        return self.storage.site.pull_host


class Visit:
    """One request."""

    def __init__(
        self,
        house: House,
        request: Request,
        client: ControlPlaneClient,
        session: Session | None = None,
    ) -> None:
        self.house = house
        self.request = request
        self.client = client
        """Of nobody."""
        self._session = session

    @property
    def session(self) -> Session:
        """Return the session; who has none must sign in."""
        if self._session is None:
            raise SignedOut
        return self._session

    @property
    def person(self) -> ControlPlaneClient:
        """Return ``/v1`` for the person."""
        return self.client.signed(self.session.person.value)

    @property
    def api(self) -> ControlPlaneClient:
        """Return ``/v1`` for the person in the role it acts in."""
        acting = self.session.acting
        assert acting is not None, "the route lets in only who acts in a role"
        return self.client.signed(acting.token.value)

    def page(self, template: str, status: int = 200, **values: object) -> Response:
        """Return a page."""
        known = {
            "session": self._session,
            "path": self.request.path,
            "query": self.request.query,
            "form": self.request.form,
            "said": SAID.get(self.request.query.get("said", "")),
            "host": self.house.host,
        }
        return Response(status, self.house.pages.render(template, known | values))

    def go(self, path: str, said: str = "") -> Response:
        """Return the way to a page, which tells what has happened."""
        return redirect(f"{path}?said={quote(said)}" if said else path)

    def keep(self, answer: Response, session: Session) -> Response:
        """Let the browser keep a session."""
        answer.cookies[COOKIE] = self.house.jar.seal(COOKIE, session)
        return answer

    def forget(self, answer: Response) -> Response:
        """Let the browser forget its session."""
        answer.cookies[COOKIE] = self.house.jar.drop(COOKIE)
        return answer
