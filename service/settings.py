"""All settings, from `POINTSMAN_*` environment variables and a `.env` file: one frozen tree, read once by `bootstrap.py`."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.errors import ConfigurationError
from service.listening import is_loopback

STATE = Path("var")
SPOOL = STATE / "spool.db"
KEYS_NOTE = STATE / "keys.json"


class Settings(BaseSettings):
    """The service's settings. Each is the environment variable of its name in capitals with the prefix `POINTSMAN_`."""

    model_config = SettingsConfigDict(env_prefix="POINTSMAN_", env_file=".env", env_ignore_empty=True, frozen=True, extra="ignore")

    host: str = Field("127.0.0.1", description="Address to listen on. Beyond loopback, callers need an API key or a bearer token.")
    port: int = Field(8100, ge=0, le=65535, description="Port to listen on.")
    database_url: str = Field(f"sqlite:///{STATE}/pointsman.db", description="Where decisions and signals are stored.")
    spool_most: int = Field(
        10_000, ge=0, le=1_000_000, description="Decisions kept on this machine's disk while a PostgreSQL database is away; then 503."
    )
    mlflow_uri: str = Field("sqlite:///mlruns/mlflow.db", description="The MLflow registry of router versions.")
    agents_base_url: str | None = Field(None, description="Where the built-in agents listen; replaces the catalogue's address of those.")
    agents_port: int = Field(
        8101, ge=1, le=65535, description="Port of the built-in agents on this machine; set, it replaces the catalogue's."
    )
    catalog: Path | None = Field(None, description="Folder with agents.yaml, intents.yaml and entities.yaml; default: the packaged one.")
    encoder: Path | None = Field(None, description="Another sentence-transformers ONNX folder (model.onnx, tokenizer.json).")
    api_keys: SecretStr | None = Field(
        None,
        description="Keys as NAME:SHA256[:PERMISSION ...], separated by commas; NAME is the tenant. See `pointsman keys`.",
    )
    oidc_issuer: str | None = Field(None, description="OpenID provider whose bearer tokens are taken, as its tokens name it (`iss`).")
    oidc_audience: str | None = Field(None, description="What bearer tokens for this service are issued for (`aud`).")
    oidc_tenant_claim: str = Field("tenant", min_length=1, description="Claim of a bearer token that names the tenant.")
    rate_per_minute: int | None = Field(None, ge=1, description="Requests a minute for each key that says nothing else; unset: any number.")
    quota_per_day: int | None = Field(None, ge=1, description="Questions a day for each key that says nothing else; unset: any number.")
    limits_url: str | None = Field(
        None,
        pattern="^redis(s|[+]unix)?://",
        description="Redis where rates are counted for all processes together; unset: each process counts for itself.",
    )
    exploration: float = Field(
        0.0, ge=0.0, le=0.2, description="How often the second of two nearly equal intents is carried out, to learn from it."
    )
    rollback_margin: float = Field(
        0.02,
        ge=0.0,
        le=1.0,
        description="By how much a new champion must be proven worse than the one before it to be taken back; 1: never.",
    )
    lm: str | None = Field(
        None, description="LM for the third rung: unset, `local`, or a LiteLLM model string such as openai/gpt-4.1-mini."
    )
    lm_light: str | None = Field(None, description="LM for light calls; default: POINTSMAN_LM.")
    lm_strong: str | None = Field(None, description="LM for strong calls; default: POINTSMAN_LM.")
    lm_api_base: str | None = Field(None, description="Address of the LM's API, where it is not the provider's own.")
    lm_api_key: SecretStr | None = Field(None, description="Key for the LM's API; default: the provider's own variable.")
    lm_audit: float = Field(
        0.02, ge=0.0, le=1.0, description="Share of what the student answered alone that the LM reads as well, after the answer; 0: none."
    )
    lm_gguf: Path = Field(STATE / "models" / "smollm2-135m.gguf", description="Model file of the local LM; `make lm` fetches it.")
    decision_budget_ms: int = Field(2_000, ge=50, le=60_000, description="Time for all but the agents, in milliseconds.")
    max_body_bytes: int = Field(1_000_000, ge=1_024, description="Largest request body that is read.")
    max_dispatches: int = Field(256, ge=8, le=100_000, description="Calls to agents at once, over all agents.")
    max_waiting: int = Field(256, ge=1, le=100_000, description="Requests that may wait, for a decision and for agents each; then 503.")
    grace_seconds: int = Field(20, ge=1, le=3_600, description="Time for requests under way when the service is told to end, in seconds.")
    otlp_endpoint: str | None = Field(
        None,
        pattern="^https?://",
        description="Where traces are sent by OTLP over HTTP, such as http://127.0.0.1:4318; unset: nowhere.",
    )
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], Field(description="Least severe log level.")] = "INFO"

    @model_validator(mode="after")
    def _names_a_primary_lm(self) -> "Settings":
        if self.lm is None and (self.lm_light is not None or self.lm_strong is not None):
            raise ValueError("POINTSMAN_LM_LIGHT and POINTSMAN_LM_STRONG stand beside POINTSMAN_LM; set that too")
        return self

    @field_validator("limits_url")
    @classmethod
    def _has_an_address(cls, value: str | None) -> str | None:
        try:
            _ = urlsplit(value or "").port
        except ValueError:
            raise ValueError("must look like redis://host:6379/0") from None
        return value

    @model_validator(mode="after")
    def _names_issuer_and_audience(self) -> "Settings":
        if (self.oidc_issuer is None) is not (self.oidc_audience is None):
            raise ValueError("POINTSMAN_OIDC_ISSUER and POINTSMAN_OIDC_AUDIENCE go together: tokens for other services must be told apart")
        return self

    @property
    def agents_address(self) -> str | None:
        """Where the built-in agents listen: their base URL, or here at a port that was set; None: where the catalogue says."""
        if self.agents_base_url is None and "agents_port" in self.model_fields_set:
            return f"http://127.0.0.1:{self.agents_port}"
        return self.agents_base_url

    @property
    def on_loopback(self) -> bool:
        """Say whether only this machine can reach the service."""
        return is_loopback(self.host)


def read_settings(**overrides: str | int | None) -> Settings:
    """Read the settings; `overrides` that are not None go before the environment.

    Raises:
        ConfigurationError: one is wrong; the message names each.
    """
    try:
        return Settings(**{n: v for n, v in overrides.items() if v is not None})  # type: ignore[arg-type]  # checked by pydantic
    except UnicodeDecodeError as exc:
        raise ConfigurationError(f"The file .env is not UTF-8 text: {exc}") from exc
    except ValidationError as exc:
        lines = [": ".join([*(f"POINTSMAN_{part}".upper() for part in e["loc"]), e["msg"]]) for e in exc.errors()]
        raise ConfigurationError("\n".join(lines)) from exc
