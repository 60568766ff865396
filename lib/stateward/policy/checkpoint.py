"""What a checkpoint directory says of itself: its tokenizer, its stop tokens, its fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stateward.errors import UserError
from stateward.policy.hashes import hash_files

#: Files besides the weights that change what a policy writes or how it is read.
_SMALL_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)


def load_tokenizer(model: Path) -> Any:
    """The checkpoint's own fast tokenizer, from disk alone.

    Raises:
        UserError: there is no checkpoint, or its tokenizer is not a fast one.
    """
    if not (model / "config.json").is_file() and not (model / "tokenizer_config.json").is_file():
        raise UserError(
            f"{model} is not a checkpoint directory",
            "it holds neither config.json nor tokenizer_config.json",
            "set policy.model to a directory in Hugging Face format",
        )
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    if not getattr(tokenizer, "is_fast", False):
        raise UserError(
            f"the tokenizer of {model} is not a fast one",
            "token ids are turned into text as vLLM does it, which needs the tokenizers library",
            "save tokenizer.json beside the checkpoint",
        )
    return tokenizer


def stop_tokens(tokenizer: Any) -> tuple[int, ...]:
    """Ids at which vLLM ends a turn, sorted: the tokenizer's end token and those that the checkpoint declares.

    The declaration is generation_config.json's or, without that file, config.json's (vLLM reads them in this order).
    """
    found = {tokenizer.eos_token_id} - {None}
    origin = getattr(tokenizer, "name_or_path", "")
    declared = next((p for n in ("generation_config.json", "config.json") if (p := Path(origin) / n).is_file()), None)
    if origin and declared:
        config = json.loads(declared.read_text(encoding="utf-8"))
        ids = config.get("eos_token_id", config.get("text_config", {}).get("eos_token_id"))
        found |= set(ids if isinstance(ids, list) else [ids]) - {None}
    return tuple(sorted(int(i) for i in found))


def policy_fingerprint(
    model: Path, parsers: Sequence[str | None], template_kwargs: Mapping[str, Any] | None = None
) -> str:
    """16 hex digits that identify a policy: weights, tokenizer, template and its settings, and parsers.

    Weights are hashed whole, once (`hash_files`); directories with the same bytes are the same policy anywhere.

    Raises:
        UserError: there are no weights.
    """
    weights = sorted(model.glob("*.safetensors")) or sorted(model.glob("*.bin"))
    if not weights:
        raise UserError(
            f"{model} holds no weights",
            "neither *.safetensors nor *.bin",
            "set policy.model to a directory in Hugging Face format",
        )
    small = [model / name for name in _SMALL_FILES if (model / name).is_file()]
    digest = hashlib.sha256()
    files = [*weights, *small]
    for path, content in zip(files, hash_files(files), strict=True):
        digest.update(f"{path.name}:{content}".encode())
    digest.update(json.dumps([list(parsers), dict(template_kwargs or {})], sort_keys=True).encode())
    return digest.hexdigest()[:16]
