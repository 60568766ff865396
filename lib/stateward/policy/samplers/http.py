"""One HTTP request with retries, back-off and a total deadline, for the samplers that talk to a server.

Retried: connection loss, 408, 409, 425, 429, 5xx, and an answer that is no answer: half a body, a gateway's page, or a
gateway's error under status 200. Anything else is a mistake of ours or of the configuration, and retrying would only
hide it. A sampling request changes nothing on the server, so sending it twice is harmless.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stateward.errors import SystemFault

if TYPE_CHECKING:
    import httpx

_RETRIED = frozenset({408, 409, 425, 429})


class Refused(SystemFault):
    """The server understood the request and will not do it; asking again would change nothing."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How long to go on. Waits double from `first_wait` to `longest_wait` seconds, each with up to 50 % of jitter."""

    attempts: int = 7
    deadline_seconds: float = 900.0  # over all attempts and waits
    attempt_seconds: float = math.inf  # of one attempt; an endpoint that hangs is asked again
    first_wait: float = 0.5
    longest_wait: float = 30.0

    def wait(self, attempt: int, retry_after: str | None) -> float:
        """Seconds before attempt number `attempt` + 1; a server's Retry-After in seconds is honoured."""
        planned = min(self.longest_wait, self.first_wait * 2.0 ** (attempt - 1)) * random.uniform(1.0, 1.5)
        try:
            return max(planned, min(float(retry_after or 0.0), self.longest_wait))
        except ValueError:  # an HTTP date; the planned wait will do
            return planned


async def post_json(
    client: httpx.AsyncClient, path: str, payload: dict[str, Any], *, retry: Retry, kind: str
) -> dict[str, Any]:
    """POST `payload` and return the JSON object of the answer.

    Args:
        kind: of the fault that is raised: ``sampler``, ``user`` or ``judge``.

    Raises:
        SystemFault(kind): nothing came back within the attempts and the deadline; `Refused` if the server refused.
    """
    import httpx  # here, as it takes 0.2 s that a dry run does not have

    started, attempt, last = time.monotonic(), 0, "no attempt was made"
    while attempt < retry.attempts and (left := retry.deadline_seconds - (time.monotonic() - started)) > 0:
        attempt += 1
        retry_after, patience = None, min(left, retry.attempt_seconds)
        try:
            async with asyncio.timeout(patience):
                response = await client.post(path, json=payload)
        except TimeoutError:
            last = f"no answer within {patience:.1f} s"
        except httpx.RequestError as error:  # connection loss, a body that ends early or cannot be decompressed
            last = f"{type(error).__name__}: {error}"
        else:
            body = _object(response)
            if response.is_success and body is not None and not ("error" in body and "choices" not in body):
                return body
            last = f"HTTP {response.status_code}: {response.text[:500]}"
            if not response.is_success and response.status_code not in _RETRIED and response.status_code < 500:
                raise Refused(kind, f"{client.base_url}{path.lstrip('/')} refused the request: {last}")
            retry_after = response.headers.get("retry-after")
        if attempt < retry.attempts:
            left = retry.deadline_seconds - (time.monotonic() - started)
            await asyncio.sleep(min(retry.wait(attempt, retry_after), max(left, 0.0)))
    spent = time.monotonic() - started
    raise SystemFault(
        kind, f"{client.base_url}{path.lstrip('/')} failed after {attempt} attempts in {spent:.1f} s: {last}"
    )


def open_client(base_url: str, api_key: str, *, connections: int = 512) -> httpx.AsyncClient:
    """A client whose only time limit is that of the connection; `post_json` bounds the rest."""
    import httpx

    return httpx.AsyncClient(
        base_url=base_url.rstrip("/") + "/",
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        timeout=httpx.Timeout(None, connect=20.0),
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        # A site's proxy is the way to an endpoint outside; it must not see a plain request for a server on this node.
        trust_env=base_url.startswith("https://"),
    )


def _object(response: httpx.Response) -> dict[str, Any] | None:
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None
