"""Asking an app over fakes, and what every problem looks like."""

from hashlib import sha256
from typing import Any

import httpx

from service.access.keys import Keys
from tests.conftest import body

UNKNOWN = "3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c11"


CAUSAL = "@causal_impact did the rep visits lift Kisqali TRx?"


def assert_problem(response: httpx.Response, status: int, code: str, *, retryable: bool = False) -> dict[str, Any]:
    """Check that a response is the problem expected, complete by RFC 9457, and return it."""
    problem: dict[str, Any] = response.json()
    assert response.status_code == status, problem
    assert response.headers["content-type"] == "application/problem+json"
    assert (problem["status"], problem["code"], problem["retryable"]) == (status, code, retryable)
    assert problem["type"] == f"urn:pointsman:problem:{code}"
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"] == response.headers["x-request-id"]
    assert ("retry-after" in response.headers) is retryable
    return problem


def two_tenants() -> Keys:
    """Return the keys of two tenants, each key being the tenant's name."""
    return Keys.parse(",".join(f"{tenant}:{sha256(tenant.encode()).hexdigest()}:tier:*" for tenant in ("acme", "umbrella")))


async def answered(client: httpx.AsyncClient, text: str = CAUSAL, **parsed: Any) -> dict[str, Any]:
    """Post a question that must be answered."""
    response = await client.post("/orchestrate", json=body(text, **parsed))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer
