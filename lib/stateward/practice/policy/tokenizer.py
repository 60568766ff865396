"""The practice policy's tokenizer: byte-level BPE over the demonstrations, the world's identifiers as single tokens.

A model this small copies an identifier only if the identifier is one token, and the same token wherever it stands:
behind a space, in quotation marks, in a call. Identifiers, item names and the markup of calls are therefore *added
tokens*, which are cut out of the text before BPE sees it; numbers stand apart from the space before them. Nothing is
normalised, so ``decode(encode(text)) == text`` for every text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
#: Dropped from decoded text when special tokens are skipped, as in Qwen's own tokenizers; ids 0, 1, 2.
SPECIAL = (END_OF_TEXT, TURN_START, TURN_END)
#: Markup that the parsers look for; ordinary tokens, so that it stays in the text.
MARKUP = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    "<DONE>",
)
#: Words with their leading space, numbers of up to three digits alone, runs of spaces, line ends, and other characters.
WORD_PATTERN = r"[0-9]{1,3}| ?[A-Za-z_]+| (?=[0-9])|\n+| ?[^\sA-Za-z0-9_]+|\s+"


def chat_template() -> str:
    """The Jinja source that is saved beside the tokenizer."""
    return files("stateward.practice.policy").joinpath("chat_template.jinja").read_text(encoding="utf-8")


def render(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> str:
    """The conversation as the chat template writes it, before there is a tokenizer that could say so."""
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered, _ = render_jinja_template(conversations=[messages], tools=tools, chat_template=chat_template())
    return str(rendered[0])


def train_tokenizer(texts: Iterable[str], *, words: Sequence[str], vocabulary: int) -> Any:
    """A `transformers` fast tokenizer with the chat template; the same texts and words give the same ids.

    Args:
        texts: rendered demonstrations, for the merges of BPE.
        words: the world's identifiers and names, each of which becomes one token; order gives the ids.
        vocabulary: size without `words`, special tokens and markup included; BPE may stop earlier.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(MARKUP),
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    own = [*MARKUP, *words]
    tokenizer.train_from_iterator(_without(texts, own), trainer)
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in own])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        bos_token=None,
        unk_token=None,
        clean_up_tokenization_spaces=False,
        chat_template=chat_template(),
    )


def load_tokenizer(checkpoint: Path) -> Any:
    """The saved tokenizer of a checkpoint directory."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(checkpoint)


def _without(texts: Iterable[str], cut: Sequence[str]) -> Iterable[str]:
    """The texts as BPE will see them: the parts between added tokens."""
    import re

    pattern = re.compile("|".join(re.escape(t) for t in sorted([*SPECIAL, *cut], key=len, reverse=True)))
    for text in texts:
        yield from filter(None, pattern.split(text))
