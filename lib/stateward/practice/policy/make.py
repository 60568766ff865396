"""Make the practice policy: ``python -m stateward.practice.policy.make [--out DIR]`` (minutes on two cores).

Without ``--out`` the checkpoint inside the package is replaced.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from stateward.errors import StatewardError
from stateward.practice.policy.demonstrations import demonstrations, order_desk, single_tokens
from stateward.practice.policy.provenance import write_note
from stateward.practice.policy.recipe import RECIPE, Recipe


def make(recipe: Recipe, out: Path, *, show: bool = True) -> None:
    """Write the recipe's checkpoint (weights in bfloat16, tokenizer, chat template, ``recipe.json``) as `out`.

    An existing `out` is replaced once the new one is whole.
    """
    import torch

    from stateward.practice.policy.tokenizer import render, train_tokenizer
    from stateward.practice.policy.training import encode, train

    began = time.process_time()
    frame = order_desk()
    endless = demonstrations(recipe.seed, recipe.slips, frame.excluded)
    conversations = list(islice(endless, recipe.steps * recipe.batch))
    head = render([{"role": "system", "content": frame.system}], frame.tools)
    texts = [head, *(render(c) for c in conversations[: recipe.tokenizer_texts])]
    tokenizer = train_tokenizer(texts, words=single_tokens(), vocabulary=recipe.vocabulary)
    prefix = tokenizer(head, add_special_tokens=False)["input_ids"]
    model = train(recipe, tokenizer, prefix, [encode(tokenizer, render(c)) for c in conversations], show=show)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".making-") as scratch:
        whole = Path(scratch) / "checkpoint"
        model.to(torch.bfloat16).save_pretrained(whole)
        tokenizer.save_pretrained(whole)
        (whole / "model.safetensors").chmod(0o644)
        write_note(whole, recipe, made_with=_versions(), cpu_seconds=round(time.process_time() - began))
        if out.exists():
            shutil.rmtree(out)
        whole.rename(out)


def _versions() -> dict[str, Any]:
    return {name: version(name) for name in ("torch", "transformers", "tokenizers")}


def main(arguments: list[str] | None = None) -> int:
    from stateward.practice.policy import SHIPPED

    parser = argparse.ArgumentParser(prog="python -m stateward.practice.policy.make", description=__doc__)
    parser.add_argument("--out", type=Path, default=SHIPPED, help="checkpoint directory (default: inside the package)")
    out = parser.parse_args(arguments).out
    try:
        make(RECIPE, out)
    except StatewardError as error:
        print(error, file=sys.stderr)
        return 2
    size = sum(p.stat().st_size for p in out.iterdir()) / 1e6
    print(f"made {out} ({size:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
