"""An OpenID provider on a real socket, its keys, and the tokens that it issues."""

import asyncio
import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

AUDIENCE = "pointsman"
RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
OTHER = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
CURVE = ec.generate_private_key(ec.SECP256R1())
SIGNED: dict[str, Any] = {  # by the algorithm, a key that can sign so
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), RSA),
    "ES256": CURVE,
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
CLAIMS: dict[str, Any] = {"aud": AUDIENCE, "sub": "client-7", "tenant": "acme", "scope": "openid tier:2 models:train"}


def jwk_of(key: Any, key_id: str | None, algorithm: str | None = None, **changes: Any) -> dict[str, Any]:
    """Return the public half as a JSON Web Key; a member that is changed to None is left out."""
    algorithm = algorithm or ("ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256")
    public: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {k: v for k, v in {**public, "alg": algorithm, "use": "sig", "kid": key_id, **changes}.items() if v is not None}


class Provider:
    """An OpenID provider: two documents on a socket, and how often each was asked for."""

    def __init__(self) -> None:
        self.url, self.keys = "", [jwk_of(RSA, "one"), jwk_of(CURVE, "two")]
        self.asked: list[str] = []
        self.status = "200 OK"
        self.changes: dict[str, Any] = {}
        self.raw: bytes | None = None
        self.mute = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.asked.append(path)
        if self.mute:
            await reader.read()
            writer.close()
            return
        about = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.changes}
        body = self.raw or json.dumps(about if path.startswith("/.well-known") else {"keys": self.keys}).encode()
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    def token(self, key: Any = RSA, key_id: str | None = "one", algorithm: str = "RS256", **changes: Any) -> str:
        """Issue a token; a claim that is changed to None is left out."""
        claims = {**CLAIMS, "iss": self.url, "exp": time.time() + 300, **changes}
        header = {"kid": key_id} if key_id is not None else None
        return jwt.encode({k: v for k, v in claims.items() if v is not None}, key, algorithm, header)
