"""Random tiny policies with a word-level tokenizer, for tests of the plumbing: a Qwen3, and a Qwen3.5 that can see."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = [
    "<pad>",
    "<|im_start|>",
    "<|im_end|>",
    "<unk>",
    "system",
    "user",
    "assistant",
    "\n",
    *[f"w{i}" for i in range(56)],
]


def write_model(folder: Path, seed: int = 0) -> Path:
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    write_tokenizer(folder)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(WORDS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.generation_config = GenerationConfig(eos_token_id=2, pad_token_id=0)
    model.save_pretrained(folder)
    return folder


def write_multimodal(folder: Path, seed: int = 0) -> Path:
    """As the published ones are: gated delta nets and attention, a vision tower, a head for multi-token prediction, a
    few tensors in fp32, several files."""
    import torch
    from safetensors.torch import save_file
    from transformers import GenerationConfig, Qwen3_5Config, Qwen3_5ForConditionalGeneration

    write_tokenizer(folder)
    torch.manual_seed(seed)
    config = Qwen3_5Config(
        text_config={
            "vocab_size": len(WORDS),
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 4,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "max_position_embeddings": 512,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [1, 1, 0],
                "mrope_interleaved": True,
                "partial_rotary_factor": 0.25,
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_heads": 2,
            "patch_size": 2,
            "out_hidden_size": 32,
            "num_position_embeddings": 16,
        },
        image_token_id=60,
        video_token_id=61,
        vision_start_token_id=62,
        vision_end_token_id=63,
    )
    model = Qwen3_5ForConditionalGeneration(config).to(torch.bfloat16)
    model.generation_config = GenerationConfig(eos_token_id=2, pad_token_id=0)
    model.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    for name, tensor in state.items():
        if name.endswith(("linear_attn.A_log", "linear_attn.norm.weight")):
            state[name] = tensor.float() + torch.rand(tensor.shape) / 1000  # of which bf16 would lose most
    state["mtp.fc.weight"] = torch.randn(32, 64, dtype=torch.bfloat16)
    names = sorted(state)
    files = {f"model-0000{i + 1}-of-00003.safetensors": names[i::3] for i in range(3)}
    for file, part in files.items():
        save_file({name: state[name] for name in part}, folder / file, metadata={"format": "pt"})
    weight_map = {name: file for file, part in files.items() for name in part}
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<|im_end|>", unk_token="<unk>", bos_token=None
    )
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|> {{ m.role }} {{ m.content }} <|im_end|> {% endfor %}"
        "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
    )
    tokenizer.save_pretrained(folder)
