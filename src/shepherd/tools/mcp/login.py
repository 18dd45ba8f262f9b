"""The login at one server over HTTP: the SDK's OAuth client, and what it leaves to an application.

    request ─▶ token known? signed ─▶ server ─▶ 401 ─▶ renewed by its refresh token ─▶ sent again
                                                 │
                   a person is here (`shepherd mcp login`), or the client has credentials of its own
                       yes: the SDK finds the authorization server, registers, gets a token
                       no:  `problem` names the command that logs in; the 401 stays the answer

An exception within an SDK's request ends its whole session, so none leaves here: `problem` says what failed. No message
contains a token: the texts of the SDK's own errors may, so they are not used, and its log of logins is off. Tokens and
credentials go to https and loopback addresses only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import extract_field_from_www_auth, is_valid_client_metadata_url
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import AnyUrl, ValidationError

from shepherd.core.address import classify
from shepherd.core.dataclasses import dataclass, replace
from shepherd.tools.base import ToolError
from shepherd.tools.mcp.login_store import Login, LoginFile
from shepherd.tools.mcp.redirect_page import HOST, PATH, RedirectPage, format_error, open_page
from shepherd.tools.mcp.values import LoginOptions, ServerOptions
from shepherd.tools.sandbox.network import Address, look_up

REQUEST_S, LOGIN_BYTES = 30.0, 2**20
"""For each part of a request to the authorization server; and for its answer as a whole."""
LOGIN = "shepherd.login"
"""Marks such a request, in its extensions."""
LONG_AGO = 1.0
MOST_SCOPE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Challenge:
    """An answer of the server that asks for a token, or for a better one."""

    status: int
    header: str

    @classmethod
    def of(cls, response: httpx2.Response) -> Challenge | None:
        header = response.headers.get("WWW-Authenticate", "")
        needs_more = (
            response.status_code == 403 and extract_field_from_www_auth(response, "error") == "insufficient_scope"
        )
        return cls(response.status_code, header) if response.status_code == 401 or needs_more else None

    def response(self, request: httpx2.Request, scopes: tuple[str, ...]) -> httpx2.Response:
        """For the SDK, which takes the scopes from here first. `scopes`: those of the configuration."""
        header = self.header
        if scopes:
            own = httpx2.Response(401, headers={"WWW-Authenticate": header})
            wanted = (extract_field_from_www_auth(own, "scope") or "").split()
            rest = header.partition(" ")[2]
            header = f'Bearer scope="{" ".join(dict.fromkeys((*scopes, *wanted)))}"{", " if rest else ""}{rest}'
        return httpx2.Response(self.status, headers={"WWW-Authenticate": header}, request=request)


class ServerLogin(httpx2.Auth):
    """Signs the requests to one server; made by `open_login`. It is also the SDK's `TokenStorage`."""

    def __init__(self, options: ServerOptions, login: LoginOptions, page: RedirectPage | None) -> None:
        """`options`: with variables expanded. `page`: where a person's login ends; None = no person is here.

        Raises: `ToolError` for credentials that cannot be used.
        """
        assert options.url is not None
        self.options, self.login, self.page = options, login, page
        self.file = LoginFile.of(options, login.folder)
        self.problem = ""
        """A predicate: why the last request was not let in; empty after one that was."""
        self.open_problem = ""
        """The last one that no token has solved: after a 401, the SDK may send a request that needs no token."""
        self.may_ask = page is not None
        """A person is asked once: a server that refuses a new token would open one page after the other."""
        self.failure = ""
        """Why the person's login has failed. From then on nothing is tried, so that an older token hides no failure."""
        self.is_loaded = False
        self.lock = asyncio.Lock()
        self.provider = self._make_provider(self.file.read())

    def _make_provider(self, known: Login) -> OAuthClientProvider:
        options = self.options
        assert options.url is not None
        scope = " ".join(options.scopes) or None
        if options.grant == "client_credentials":
            require_safe(options.url)
            # Without a configured issuer, it stays the first one: a server cannot lead the secret elsewhere later.
            issuer = options.issuer or known.authorization.get("issuer")
            return self._make_own_provider(options.url, issuer, scope)
        address = self.page.address if self.page is not None else f"http://{HOST}{PATH}"
        metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(address)], client_name="Shepherd", scope=scope)
        is_document = is_valid_client_metadata_url(options.client_id)
        return OAuthClientProvider(
            options.url, metadata, self, self._send_person, self._redirect, options.client_id if is_document else None
        )

    def _make_own_provider(self, url: str, issuer: str | None, scope: str | None) -> OAuthClientProvider:
        """For a client with credentials of its own."""
        from mcp.client.auth.extensions import client_credentials as sdk  # noqa: PLC0415 - imports cryptography

        options = self.options
        if options.client_id is None or (options.client_secret is None) == (options.client_key is None):
            raise ToolError("with the grant client_credentials, set client_id, and client_secret or client_key")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            if options.client_secret is not None:
                return sdk.ClientCredentialsOAuthProvider(
                    url, self, options.client_id, options.client_secret, scope=scope, issuer=issuer
                )
            assert options.client_key is not None
            key, algorithm = read_key(Path(options.client_key))
            signed = sdk.SignedJWTParameters(
                issuer=options.client_id, subject=options.client_id, signing_key=key, signing_algorithm=algorithm
            )
            return sdk.PrivateKeyJWTOAuthProvider(
                url, self, options.client_id, signed.create_assertion_provider(), scope=scope, issuer=issuer
            )

    # -- requests ---------------------------------------------------------------------------------------------------

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The requests that this one takes. Only a request that needs a new token waits for others that need one."""
        if not self.is_loaded:
            self._load()
        if self.failure:
            yield request
            self._refuse(self.failure)
            return
        context = self.provider.context
        has_credentials = self.options.grant == "client_credentials"
        replayed = self._recorded() if self.may_ask else None
        token, challenge = "", None
        if replayed is None and (has_credentials or context.is_token_valid() or not context.can_refresh_token()):
            token = self._sign(request)
            challenge = self._judge((yield request))
            if challenge is None:
                return
        problem = ""
        async with AsyncExitStack() as alone:
            await alone.enter_async_context(self.lock)
            if replayed is None:
                self._load()  # another request, or another Shepherd, may have a new token
                if context.can_refresh_token() and self._token() in {"", token}:
                    await alone.enter_async_context(self.file.locked())
                    self._load()
            asks, logs_in = self.may_ask, self.may_ask or has_credentials
            has_newer = replayed is None and self._token() not in {"", token}
            renews = not logs_in and context.can_refresh_token() and (challenge is None or challenge.status == 401)
            if not has_newer and (logs_in or renews):
                self.may_ask = False
                if renews:
                    context.token_expiry_time = LONG_AGO  # the SDK renews what has expired
                steps = self._log_in(request, None if renews else replayed or challenge)
                try:
                    outgoing = await anext(steps)
                    while True:
                        outgoing = await steps.asend((yield outgoing))
                except StopAsyncIteration:
                    problem = self.problem
                finally:
                    await steps.aclose()
                if problem and renews:
                    self._load()  # another Shepherd may have used the refresh token without the lock
            elif not has_newer and challenge is not None:
                self._needs_person(challenge)
                return
        if problem and logs_in:
            context.clear_tokens()
        self._sign(request)
        refused = self._judge((yield request))
        if logs_in and (problem or refused is not None):
            self._refuse(problem or "refuses the token of its own login")
            self.failure = self.problem if asks else ""
        elif refused is not None:
            self._needs_person(refused)
        else:
            self._save(status=0, challenge="")

    async def _log_in(
        self, request: httpx2.Request, challenge: Challenge | None
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The requests to the authorization server. Then there is a new token, or `problem` says why there is none.
        Without a challenge, the token is only renewed.
        """
        flow = self.provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while outgoing is not request or challenge is not None:
                if outgoing is not request:
                    await self._prepare(outgoing)
                    response = yield outgoing
                    await self._note(response)
                else:
                    assert challenge is not None
                    response, challenge = challenge.response(request, self.options.scopes), None
                outgoing = await flow.asend(response)
        except Exception as error:  # foreign code may raise anything; its text may contain a token
            self._refuse(self._explain(error))
        finally:
            await flow.aclose()

    def _judge(self, response: httpx2.Response) -> Challenge | None:
        """What an answer to a request asks for; None = the request was let in."""
        challenge = Challenge.of(response)
        if challenge is None:
            self.problem = ""
            if response.is_success and "Authorization" in response.request.headers:
                self.open_problem = ""
        return challenge

    def _refuse(self, problem: str) -> None:
        self.problem = self.open_problem = problem

    def _token(self) -> str:
        """The valid one; empty = none."""
        context = self.provider.context
        return context.current_tokens.access_token if context.current_tokens and context.is_token_valid() else ""

    def _sign(self, request: httpx2.Request) -> str:
        """The token that the request has now; empty = none."""
        request.headers.pop("Authorization", None)
        if token := self._token():
            request.headers["Authorization"] = f"Bearer {token}"
        return token

    async def _prepare(self, outgoing: httpx2.Request) -> None:
        """Raises: `ToolError` for an address that the server must not send us to."""
        where = str(outgoing.url)
        self._refuse(f"needs {Address.of(where).host}, which did not answer the login")
        await check_address(where, self.provider.context.server_url)
        outgoing.extensions |= {"timeout": httpx2.Timeout(REQUEST_S).as_dict(), LOGIN: True}

    async def _note(self, response: httpx2.Response) -> None:
        """Keep the error of a request of the login, in the words of OAuth."""
        self.problem = ""
        if response.status_code >= 400 and response.request.method == "POST":
            await response.aread()
            host = response.request.url.host
            self._refuse(f"cannot log in: {host} answered {self._without_secrets(oauth_error(response))}")
        elif response.is_success and response.request.method == "GET":
            self._fit_client(await response.aread())

    def _fit_client(self, body: bytes) -> None:
        """A configured secret goes the way that the authorization server takes it. `body`: perhaps its metadata, which
        the SDK uses as soon as it has read them.
        """
        client = self.provider.context.client_info
        if client is None or self.options.client_secret is None or client.client_id != self.options.client_id:
            return
        with suppress(ValueError, KeyError, TypeError):
            known = json.loads(body)["token_endpoint_auth_methods_supported"]
            posts = "client_secret_post" in known and "client_secret_basic" not in known
            client.token_endpoint_auth_method = "client_secret_post" if posts else "client_secret_basic"

    def _needs_person(self, challenge: Challenge) -> None:
        command = f"'shepherd mcp login {shlex.quote(self.options.name)}'"
        answer = httpx2.Response(challenge.status, headers={"WWW-Authenticate": challenge.header})
        scope = format_error(extract_field_from_www_auth(answer, "scope") or "more than it has", "")[:MOST_SCOPE_CHARS]
        if self.options.grant == "client_credentials":
            self._refuse("refuses its client_id; check client_id, its secret or key, and scopes")
        elif challenge.status == 403:
            self._refuse(f"wants a login with further rights ({scope}); {command} asks for them")
        elif challenge.header.lower().startswith("bearer") or self.provider.context.client_info is not None:
            self._refuse(f"needs a login; {command} logs in")
        else:
            self._refuse(f"answered with HTTP status 401; check its url and headers, or log in with {command}")
            return
        self._save(status=challenge.status, challenge=challenge.header)

    def _explain(self, error: Exception) -> str:
        match error:
            case ToolError():
                return f"cannot log in: {error.message}"
            case _ if self.problem.startswith("cannot log in"):
                return self.problem
            case OAuthFlowError():
                text = str(error).partition("\n")[0] if type(error) is OAuthFlowError else "the answer cannot be used"
                return f"cannot log in: {self._without_secrets(format_error(text, ''))}"
            case _:
                return f"cannot log in: the answer of the authorization server cannot be used ({type(error).__name__})"

    def _without_secrets(self, text: str) -> str:
        context = self.provider.context
        tokens, client = context.current_tokens, context.client_info
        secrets = (
            *(filter(None, (tokens.access_token, tokens.refresh_token)) if tokens else ()),
            *(filter(None, (client.client_secret,)) if client else ()),
        )
        for secret in secrets:
            text = text.replace(secret, "***")
        return text

    # -- the person -------------------------------------------------------------------------------------------------

    async def _send_person(self, address: str) -> None:
        assert self.page is not None
        assert self.login.open_page is not None
        client, own = self.provider.context.client_info, self.options.client_id
        if client is not None and own not in (None, client.client_id) and not is_valid_client_metadata_url(own):
            raise ToolError(
                f"the server names another authorization server than {self.options.issuer or 'before'}; if that is "
                f"right, change issuer, and run 'shepherd mcp logout {shlex.quote(self.options.name)}' first"
            )
        await check_address(address, self.provider.context.server_url)
        self.page.state = parse_qs(urlsplit(address).query)["state"][0]
        await self.login.open_page(address)

    async def _redirect(self) -> AuthorizationCodeResult:
        assert self.page is not None
        found = await self.page.redirect(self.login.timeout_s)
        return AuthorizationCodeResult(code=found.code, state=found.state, iss=found.issuer)

    def _recorded(self) -> Challenge | None:
        """What an earlier request was refused with: perhaps no request of a start is."""
        known = self.file.read()
        return Challenge(known.status, known.challenge) if known.status else None

    # -- the file ---------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Take over the login of the file. A person who logs in begins without a token, but for more rights."""
        known, context = self.file.read(), self.provider.context
        try:
            tokens = OAuthToken(**known.tokens) if known.tokens else None
            client = OAuthClientInformationFull(**known.client) if known.client else None
            authorization = OAuthMetadata(**known.authorization) if known.authorization else None
            resource = ProtectedResourceMetadata(**known.resource) if known.resource else None
        except ValidationError:
            tokens = client = authorization = resource = None
        begins = self.may_ask and known.status != 403
        context.current_tokens = None if begins else tokens
        context.token_expiry_time = known.expires_at
        context.oauth_metadata = context.oauth_metadata if begins else authorization
        context.protected_resource_metadata = resource
        if resource is not None:
            context.auth_server_url = str(resource.authorization_servers[0])
        if self.options.client_id is not None and not is_valid_client_metadata_url(self.options.client_id):
            if self.options.grant == "authorization_code":
                issuer = self.options.issuer or known.authorization.get("issuer")
                context.client_info = self._configured_client(self.options.client_id, issuer)
        elif self.page is None or known.port == self._port:
            context.client_info = client
        self.is_loaded = True

    @property
    def _port(self) -> int:
        return urlsplit(self.page.address).port or 0 if self.page is not None else 0

    def _configured_client(self, client_id: str, issuer: str | None) -> OAuthClientInformationFull:
        secret = self.options.client_secret
        return OAuthClientInformationFull(
            client_id=client_id,
            client_secret=secret,
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
            issuer=issuer,
        )

    def _save(self, **changes: Any) -> None:
        known = self.file.read()
        new = replace(known, **changes)
        if new == known:
            return
        try:
            self.file.write(new)
        except OSError as error:
            logging.getLogger(__name__).warning(
                "the login at %s cannot be kept: %s: %s", self.options.name, self.file.path, error.strerror
            )

    async def get_tokens(self) -> OAuthToken | None:
        return self.provider.context.current_tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.provider.context
        models = {"authorization": context.oauth_metadata, "resource": context.protected_resource_metadata}
        self._save(
            tokens=tokens.model_dump(mode="json", exclude_none=True),
            expires_at=None if tokens.expires_in is None else time.time() + tokens.expires_in,
            **{name: each.model_dump(mode="json", exclude_none=True) if each else {} for name, each in models.items()},
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.provider.context.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._save(client=client_info.model_dump(mode="json", exclude_none=True), port=self._port)


async def open_login(options: ServerOptions, login: LoginOptions, stack: AsyncExitStack) -> ServerLogin | None:
    """For a server with an address; `stack` closes it. None where the configuration has a header of its own.

    Raises: `ToolError`.
    """
    assert options.url is not None
    if any(name.lower() == "authorization" for name in options.headers) or urlsplit(options.url).username:
        return None
    page = None
    if login.open_page is not None and options.grant == "authorization_code":
        require_safe(options.url)
        known = LoginFile.of(options, login.folder).read()
        try:
            page = await stack.enter_async_context(open_page(login.port or known.port))
        except OSError as error:
            if login.port:
                raise ToolError(
                    f"port {login.port} cannot be used: {error.strerror}; choose another --callback-port"
                ) from error
            page = await stack.enter_async_context(open_page())
    return ServerLogin(options, login, page)


def oauth_error(response: httpx2.Response) -> str:
    """`error` and `error_description` of an answer that has been read; otherwise its status."""
    try:
        body = json.loads(response.content)
        return format_error(str(body["error"]), str(body.get("error_description") or ""))
    except (ValueError, KeyError, TypeError, AttributeError, httpx2.StreamError):
        return f"HTTP status {response.status_code}"


def read_key(path: Path) -> tuple[str, str]:
    """A private key in PEM, and how it signs. Raises: `ToolError`."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415 - large
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        text = path.expanduser().read_bytes()
        key = load_pem_private_key(text, None)
    except OSError as error:
        raise ToolError(f"client_key: {path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise ToolError(f"client_key: {path} is not a private key in PEM without a password") from error
    match key:
        case ec.EllipticCurvePrivateKey():
            return text.decode(), {384: "ES384", 521: "ES512"}.get(key.key_size, "ES256")
        case rsa.RSAPrivateKey():
            return text.decode(), "RS256"
        case ed25519.Ed25519PrivateKey():
            return text.decode(), "EdDSA"
    raise ToolError(f"client_key: {path} is a key of another kind than RSA, elliptic curve and Ed25519")


# -- addresses --------------------------------------------------------------------------------------------------------


def require_safe(url: str) -> None:
    """Raises: `ToolError` where a token would travel in plain text."""
    target = Address.of(url)
    if target.scheme != "https" and not is_loopback(target.host):
        raise ToolError(f"a login at {target.url} needs https: others on the way would see the token")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


async def check_address(url: str, server: str, lookup: Callable[[str, int], Awaitable[Any]] = look_up) -> None:
    """Whether a login at `server` may call `url`, which comes from the server.

    https, or http on the loopback address; a private address only for a server that has one. The look-up here and that
    of the connection may differ (DNS rebinding), which is harmless: over https, the certificate must fit the name.

    Raises: `ToolError`.
    """
    require_safe(url)
    target, home = Address.of(url), Address.of(server)
    if target.host == home.host:
        return
    try:
        places = {classify(each) for each in await lookup(target.host, target.port)}
        own = {classify(each) for each in await lookup(home.host, home.port)} if places != {"world"} else set()
    except OSError:  # behind a proxy, which knows the name; a direct connection fails as the look-up did
        return
    if "nowhere" in places or (places != {"world"} and own != {"near"}):
        raise ToolError(f"the server names {target.authority} for its login, which is a private address")
