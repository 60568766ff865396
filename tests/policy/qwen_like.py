"""A small tokenizer built like Qwen's, templates of its families, and a tiny checkpoint with random weights."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

TEMPLATES = Path(__file__).parent / "templates"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
#: Qwen's own split of text before byte-level BPE.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = (
    "The order was shipped on Tuesday. Please cancel order 1042 and refund the customer's card.\n",
    '{"name": "cancel_order", "arguments": {"order_id": "A-17", "notify": true, "items": [1, 2]}}\n',
    "<function=cancel_order>\n<parameter=order_id>\nA-17\n</parameter>\n</function>\n",
    "assistant\nuser\nsystem\ntool\n# Tools\nresult: ok, error: not found, question, answer, anchor, thinking\n",
)


@functools.cache
def template(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


@functools.cache
def tokenizer(name: str = "qwen35") -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    backend.train_from_iterator(CORPUS * 4, trainer)
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    backend.add_tokens([AddedToken(t, special=False, normalized=False) for t in ADDED])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        chat_template=template(name),
    )


def save_checkpoint(folder: Path, name: str = "qwen35", *, max_positions: int = 8192) -> Path:
    """A Qwen3 of 60 thousand parameters with random weights, in Hugging Face format."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tok = tokenizer(name)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tok),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=max_positions,
        tie_word_embeddings=False,
        eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id,
        bos_token_id=None,
        dtype="bfloat16",
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tok.save_pretrained(folder)
    ids = [tok.eos_token_id, tok.pad_token_id]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids, "do_sample": True}))
    return folder


def tool(name: str, properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required or [], **more}
    return {"type": "function", "function": {"name": name, "description": f"The {name} tool.", "parameters": schema}}


def message_of(turn: Any) -> dict[str, Any]:
    """A turn as a chat message, arguments as JSON text, the way an OpenAI client writes it."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for call in turn.calls
        ]
    return message
