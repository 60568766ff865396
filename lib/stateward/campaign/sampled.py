"""What a sampling stage samples: a checkpoint behind vLLM, or a model behind a chat endpoint.

Either says the same things of itself: its fingerprint, the settings of its trials, how it is served, and it can be
opened as a policy for episodes.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stateward.campaign.layout import PRACTICE, model_path
from stateward.config import Config, EndpointConfig, config_to_dict
from stateward.episode import Policy, settings_of
from stateward.errors import UserError, nearest
from stateward.outcome import fingerprint
from stateward.policy import fingerprint_of

#: Of a sampling parameter that is not sent: the endpoint decides.
_ITS_OWN = "the endpoint's own"


class Sampled(Protocol):
    """A policy before it runs."""

    @property
    def name(self) -> str:
        """Path or name of the model."""
        ...

    @property
    def priced_as(self) -> str:
        """Its name in the price list."""
        ...

    @property
    def identity(self) -> str:
        """The fingerprint of the policy."""
        ...

    def settings(self) -> dict[str, Any]:
        """What else decides a trial's outcome; its fingerprint is part of every trial's identity."""
        ...

    def served(self) -> dict[str, Any]:
        """How it is served, as far as that can change an outcome."""
        ...

    @property
    def devices(self) -> int:
        """GPUs that serving it takes."""
        ...

    def require(self) -> None:
        """Raise UserError if something is missing here that a run needs, before anything is written or submitted."""
        ...

    def open(self, log: Path) -> Any:
        """Async context manager of a `Policy`; `log` gets a server's output. Imports what is heavy."""
        ...


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A directory in Hugging Face format. `max_model_len`: tokens of context."""

    config: Config
    path: Path
    max_model_len: int

    @property
    def name(self) -> str:
        return str(self.path.resolve())

    @property
    def priced_as(self) -> str:
        base = self.config.policy.model
        # What is bundled lies somewhere in the package, under no name that a price list could have.
        own = model_path(self.config) if base == PRACTICE else Path(base)
        return base if own.resolve() == self.path.resolve() else self.name

    @property
    def identity(self) -> str:
        return fingerprint_of(self.path, self.config.policy)

    def settings(self) -> dict[str, Any]:
        return settings_of(self.config, max_model_len=self.max_model_len)

    def served(self) -> dict[str, Any]:
        serve = self.config.serve
        return {
            "engine": "vllm",
            "dtype": serve.dtype,
            "tensor_parallel": serve.tensor_parallel,
            "extra": dict(serve.extra),
            "template": template_hash(self.path),
            "template_settings": dict(self.config.policy.template),
        }

    @property
    def devices(self) -> int:
        return self.config.serve.devices

    def require(self) -> None:
        """Nothing: that the checkpoint is whole, planning has found out."""

    @asynccontextmanager
    async def open(self, log: Path) -> AsyncIterator[Policy]:
        from stateward.cluster.services.vllm import serve
        from stateward.episode import TokenPolicy
        from stateward.policy import open_policy
        from stateward.policy.preflight import check_server
        from stateward.policy.samplers.http import Retry
        from stateward.policy.samplers.vllm import VllmSampler

        config = self.config
        opened = open_policy(self.path, config.policy)
        with serve(self.path, config.serve, max_model_len=self.max_model_len, log=log) as server:
            async with VllmSampler(
                server.base_url,
                server.api_key,
                config.sampling,
                tokenizer=opened.tokenizer,
                retry=Retry(deadline_seconds=config.episode.turn_seconds),
            ) as sampler:
                await check_server(opened.renderer, opened.interpreter, sampler)
                yield TokenPolicy(
                    renderer=opened.renderer,
                    interpreter=opened.interpreter,
                    sampler=sampler,
                    fingerprint=self.identity,
                    max_model_len=self.max_model_len,
                    max_tokens_per_turn=config.sampling.max_tokens_per_turn,
                )


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The model behind ``evaluate.endpoints.LABEL`` of the configuration."""

    config: Config
    label: str

    def __post_init__(self) -> None:
        known = self.config.evaluate.endpoints
        if self.label not in known:
            raise UserError(f"evaluate.endpoints has no {self.label!r}", do=nearest(self.label, known))
        if not (known[self.label].base_url and known[self.label].model):
            raise UserError(
                f"evaluate.endpoints.{self.label} needs base_url and model",
                do=f"for instance evaluate.endpoints.{self.label}.base_url=https://host/v1",
            )

    @property
    def name(self) -> str:
        return self.config.evaluate.endpoints[self.label].model

    @property
    def priced_as(self) -> str:
        return self.name

    @property
    def identity(self) -> str:
        # Where it is reached is no part of it: a server on a free port has another address every time.
        endpoint = self.config.evaluate.endpoints[self.label]
        return fingerprint({"endpoint": endpoint.model, "extra": self._extra()})

    def settings(self) -> dict[str, Any]:
        settings = settings_of(self.config, max_model_len=self.config.evaluate.max_model_len)
        for name in ("tool_parser", "reasoning_parser"):  # it has none of ours
            settings.pop(name)
        sampling = self.config.sampling
        sent = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens_per_turn, **self._extra()}
        known = {name: value for name, value in sent.items() if value is not None}  # null: not sent
        limit = known.get("max_completion_tokens", known.get("max_tokens", _ITS_OWN))
        return settings | {
            "max_model_len": _ITS_OWN,
            "sampling": {
                **{name: known.get(name, _ITS_OWN) for name in ("temperature", "top_k", "top_p")},
                "max_tokens_per_turn": limit,
                "seed": sampling.seed,
            },
        }

    def served(self) -> dict[str, Any]:
        return {"engine": "chat endpoint"}

    @property
    def devices(self) -> int:
        return 0

    def require(self) -> None:
        name = self.config.evaluate.endpoints[self.label].api_key_env
        if name and not os.environ.get(name):
            raise UserError(
                f"the environment variable {name} is not set",
                f"evaluate.endpoints.{self.label}.api_key_env says that the key is in it",
                f"export {name}=… in the shell that runs or submits",
            )

    @asynccontextmanager
    async def open(self, log: Path) -> AsyncIterator[Policy]:
        from stateward.episode import ChatPolicy
        from stateward.policy.samplers.chat import ChatSampler

        endpoint = self.config.evaluate.endpoints[self.label]
        chat = EndpointConfig(
            kind="chat",
            base_url=endpoint.base_url,
            model=endpoint.model,
            api_key_env=endpoint.api_key_env,
            temperature=self.config.sampling.temperature,
            timeout_seconds=endpoint.timeout_seconds,
            max_retries=endpoint.max_retries,
            extra=self._extra(),
        )
        limit = self.config.sampling.max_tokens_per_turn
        async with ChatSampler(chat) as model:
            # A wrong key or model name is found out by one request, not by a void of every trial.
            await model.chat([{"role": "user", "content": "Say OK."}], max_tokens=16, seed=self.config.sampling.seed)
            yield ChatPolicy(model=model, fingerprint=self.identity, max_tokens_per_turn=limit)

    def _extra(self) -> dict[str, Any]:
        """Request parameters besides those that every chat endpoint takes; the endpoint's own word wins."""
        return {
            "top_p": self.config.sampling.top_p,
            **config_to_dict(self.config.evaluate.endpoints[self.label])["extra"],
        }


def template_hash(model: Path) -> str:
    """Hash of the text of a checkpoint's chat template, wherever it is kept; ``none`` without.

    A checkpoint that was saved anew may have it in another of the places where transformers looks. The newline at its
    end is no part of it: Jinja drops it.
    """
    jinja = model / "chat_template.jinja"
    found: Any = jinja.read_text(encoding="utf-8") if jinja.is_file() else ""
    for name in ("chat_template.json", "tokenizer_config.json"):
        file = model / name
        if not found and file.is_file():
            found = json.loads(file.read_text(encoding="utf-8")).get("chat_template")
    if isinstance(found, list):  # several by name; conversations with tools take the default one as well
        found = {row["name"]: row["template"] for row in found}.get("default")
    return fingerprint(found.removesuffix("\n")) if found else "none"
