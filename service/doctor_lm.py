"""What `pointsman doctor` finds out about the language model: whether its file, its key and its address are there. It costs no tokens."""

import asyncio
import os
import re

import httpx

from service.doctor_addresses import require_address
from service.errors import ConfigurationError
from service.settings import Settings

REACH_SECONDS = 3.0
LOCAL = "local"
REFUSED = frozenset({401, 403})
IN_A_HEADER = re.compile("[!-~]+")  # what a key is made of: visible ASCII


async def language_model(settings: Settings) -> str:
    """Look at the LM of each class that is configured."""
    if settings.lm is None:
        return "none configured (POINTSMAN_LM); rules, student and safe default answer"
    models = list(dict.fromkeys(m for m in (settings.lm, settings.lm_light, settings.lm_strong) if m is not None))
    if any(model.partition("/")[0] == LOCAL for model in models) and not settings.lm_gguf.is_file():
        raise ConfigurationError(f"POINTSMAN_LM={LOCAL} needs {settings.lm_gguf}. Fetch it with: make lm")
    distant = [model for model in models if model.partition("/")[0] != LOCAL]
    key = settings.lm_api_key.get_secret_value() if settings.lm_api_key is not None else None
    if distant and key is not None and not IN_A_HEADER.fullmatch(key):
        raise ConfigurationError("POINTSMAN_LM_API_KEY has a character that no key has: a space, or one beyond ASCII. Copy it anew.")
    if distant and settings.lm_api_base is not None:
        require_address(settings.lm_api_base, "POINTSMAN_LM_API_BASE")
        return f"{', '.join(models)}: {await _ask(settings.lm_api_base, key)}"
    if distant and key is None:
        await asyncio.to_thread(_require_keys, distant)
    return f"{', '.join(models)}; {'its key is set' if distant else 'its file is there'}"


async def _ask(address: str, key: str | None) -> str:
    """Ask for the list of models, which costs nothing; the key goes where the service would send it, and nowhere else."""
    headers = {"Authorization": f"Bearer {key}", "x-api-key": key} if key is not None else {}
    try:
        async with httpx.AsyncClient(timeout=REACH_SECONDS, trust_env=False) as client:
            response = await client.get(f"{address.rstrip('/')}/models", headers=headers)
    except (httpx.TransportError, httpx.InvalidURL) as exc:
        advice = "Is it running, and is POINTSMAN_LM_API_BASE right? Until it answers the student does."
        raise ConfigurationError(f"{address} cannot be reached ({type(exc).__name__}). {advice}") from exc
    if response.status_code in REFUSED:
        wanted = "refuses the key of POINTSMAN_LM_API_KEY" if key is not None else "wants a key: set POINTSMAN_LM_API_KEY"
        raise ConfigurationError(f"{address} {wanted} (HTTP status {response.status_code}).")
    return f"{address} answers"


def _require_keys(models: list[str]) -> None:
    """Look whether the providers' own variables are set, as LiteLLM knows them.

    Raises:
        ConfigurationError: one is missing, or a provider is not known.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")  # else it fetches a price list
    import litellm
    from litellm.exceptions import BadRequestError

    litellm.suppress_debug_info = True
    for model in models:
        try:
            litellm.get_llm_provider(model)
        except BadRequestError as exc:
            example = "such as openai/gpt-4.1-mini"
            raise ConfigurationError(
                f"No provider is known for the LM {model!r}. Name it as LiteLLM does: PROVIDER/MODEL, {example}."
            ) from exc
        missing = litellm.validate_environment(model=model)["missing_keys"]
        if missing:
            raise ConfigurationError(f"The LM {model} needs {', '.join(missing)}: set it, or POINTSMAN_LM_API_KEY.")
