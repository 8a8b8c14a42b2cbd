"""Makes the DSPy client of an LM endpoint. The first use imports DSPy, which takes a second and more."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from service.adapters.local_lm import PROVIDER, LMEndpoint, LocalLM, register_provider
from service.errors import ConfigurationError
from service.settings import Settings

if TYPE_CHECKING:
    import dspy


@asynccontextmanager
async def open_endpoints(settings: Settings, *, threads: int | None = None) -> AsyncIterator[tuple[LMEndpoint, LMEndpoint, LMEndpoint]]:
    """Start the local LM where it is one of the configured ones, and yield the endpoints for light, primary and strong calls.

    Raises:
        ConfigurationError: no LM is configured, or the local one cannot be started.
    """
    if settings.lm is None:
        raise ConfigurationError("No language model is configured. Set POINTSMAN_LM to `local` or a LiteLLM model string.")
    names = (settings.lm_light or settings.lm, settings.lm, settings.lm_strong or settings.lm)
    key = settings.lm_api_key.get_secret_value() if settings.lm_api_key else None
    endpoints = {name: LMEndpoint(name, settings.lm_api_base, key) for name in names}
    local = LocalLM(settings.lm_gguf, threads=threads) if PROVIDER in names else None
    try:
        if local is not None:
            endpoints[PROVIDER] = await local.start()
        light, primary, strong = (endpoints[name] for name in names)
        yield light, primary, strong
    finally:
        if local is not None:
            await local.close()


def make_lm(endpoint: LMEndpoint, *, retries: int = 0, timeout: float | None = None) -> "dspy.LM":
    """Return a client without a cache that asks nobody until it is called.

    Args:
        endpoint: where the LM is.
        retries: how often a call that failed for a passing reason is tried again.
        timeout: of one call, in seconds; None: the engine's own.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")  # else DSPy fetches a price list on the first call
    import dspy
    from dspy.utils.exceptions import LMError

    said = logging.getLogger("dspy")  # it writes to standard error by itself, where each line is to be an object
    said.handlers.clear()
    said.propagate = True
    if endpoint.model.startswith(f"{PROVIDER}/") and endpoint.api_base is not None:
        register_provider(endpoint.api_base)
    # An address of our own comes with a key of our own: never send there what the environment holds for the provider.
    options: dict[str, Any] = {} if endpoint.api_base is None else {"api_base": endpoint.api_base, "api_key": endpoint.api_key or "none"}
    if endpoint.api_base is None and endpoint.api_key is not None:
        options = {"api_key": endpoint.api_key}
    if timeout is not None:
        options["timeout"] = timeout
    lm = dspy.LM(endpoint.model, engine="lm15", cache=False, num_retries=retries, **options)
    try:
        _ = lm.supports_response_schema  # resolves the model string without network
    except LMError:
        # Naming the engine keeps variables such as OPENAI_API_BASE from choosing it.
        lm = dspy.LM(endpoint.model, engine="litellm", cache=False, num_retries=retries, **options)
    return lm
