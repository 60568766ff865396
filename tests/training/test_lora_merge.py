"""An adapter added into the base's files by name, and everything that must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stateward.errors import SystemFault, UserError
from stateward.training import adapter, tensors
from stateward.training.shards import Shards

torch = pytest.importorskip("torch")

PREFIX = "base_model.model."


def base() -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "model.layers.0.proj.weight": torch.randn(6, 5, dtype=torch.bfloat16),
        "model.layers.0.exact.weight": torch.randn(3, 5),
        "model.layers.0.unused.weight": torch.tensor([[0.0, -0.0], [1.0, 2.0]], dtype=torch.bfloat16),
        "model.norm.weight": torch.randn(5, dtype=torch.bfloat16),
    }


def factors(rank: int = 2) -> dict[str, Any]:
    """As they stand in Verl's shards, among the base's own weights."""
    torch.manual_seed(1)
    found = {}
    for name, tensor in base().items():
        if tensor.dim() == 2:
            module = PREFIX + name.removesuffix(".weight")
            zero = 0.0 if "unused" in name else 1.0
            found[f"{module}.base_layer.weight"] = tensor.float()
            found[f"{module}.lora_A.default.weight"] = torch.randn(rank, tensor.shape[1])
            found[f"{module}.lora_B.default.weight"] = torch.randn(tensor.shape[0], rank) * zero
    return {**found, f"{PREFIX}model.norm.weight": base()["model.norm.weight"].float()}


def write_base(folder: Path, content: dict[str, Any] | None = None) -> Path:
    """Two files."""
    from safetensors.torch import save_file

    folder.mkdir()
    items = sorted((content or base()).items())
    for number in range(2):
        save_file(dict(items[number::2]), folder / f"model-{number}.safetensors", metadata={"format": "pt"})
    return folder


def write_shards(folder: Path, *ranks: dict[str, Any], meta: str = '{"r": 2, "lora_alpha": 3}') -> Path:
    folder.mkdir(parents=True)
    for number, content in enumerate(ranks):
        torch.save(content, folder / f"model_world_size_{len(ranks)}_rank_{number}.pt")
    (folder / adapter.META).write_text(meta)
    return folder


def read(folder: Path, content: dict[str, Any], **meta: str) -> adapter.Adapter:
    return adapter.read_adapter(write_shards(folder, content, **meta), Shards(folder, 1))


def raw(model: Path, name: str) -> bytes:
    path = tensors.weight_files(model)[name]
    header = tensors.read_header(path)
    begin, end = header.entries[name]["data_offsets"]
    return path.read_bytes()[header.data + begin : header.data + end]


def test_the_sum_is_rounded_once_to_the_precision_of_the_base(tmp_path: Path) -> None:
    parts = factors()
    folder, merged = write_base(tmp_path / "base"), tmp_path / "merged"
    adapter.add_adapter(read(tmp_path / "actor", parts), folder, merged)
    for name, old in base().items():
        assert tensors.precisions(merged)[name] == tensors.precisions(folder)[name]
        if "proj" in name or "exact" in name:
            a, b = (parts[f"{PREFIX}{name.removesuffix('weight')}lora_{x}.default.weight"] for x in "AB")
            expected = (old.float() + 3 / 2 * (b @ a)).to(old.dtype)
            assert raw(merged, name) == bytes(expected.view(torch.uint8).numpy())
            assert raw(merged, name) != raw(folder, name)
        else:  # a norm, and a layer that was never used, whose zeros keep their signs
            assert raw(merged, name) == raw(folder, name)
    assert sorted(path.name for path in merged.iterdir()) == ["model-0.safetensors", "model-1.safetensors"]


def test_the_index_goes_with_the_files(tmp_path: Path) -> None:
    folder = write_base(tmp_path / "base")
    (folder / tensors.INDEX).write_text('{"weight_map": {}}')
    adapter.add_adapter(read(tmp_path / "actor", factors()), folder, tmp_path / "merged")
    assert (tmp_path / "merged" / tensors.INDEX).read_text() == '{"weight_map": {}}'


@pytest.mark.parametrize(
    ("name", "replaced", "text"),
    [
        ("model.layers.0.proj.weight", None, r"layers\.0\.proj\.weight is not in the base"),
        ("model.layers.0.proj.weight", (5, 6), r"proj\.weight is \[5, 6\] in the base and \[6, 5\] in the adapter"),
        ("model.layers.0.proj.weight", (6, 5, 1), r"is \[6, 5, 1\] in the base"),
        ("model.layers.0.exact.weight", "float8_e4m3fn", r"exact\.weight is F8_E4M3 in the base, to which nothing"),
    ],
)
def test_a_pair_that_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, replaced: Any, text: str
) -> None:
    content = base()
    old = content.pop(name)
    if isinstance(replaced, tuple):
        content[name] = torch.zeros(replaced, dtype=old.dtype)
    elif replaced:
        content[name] = old.to(getattr(torch, replaced))
    found = read(tmp_path / "actor", factors())
    with pytest.raises(UserError, match=text):
        adapter.add_adapter(found, write_base(tmp_path / "base", content), tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_base_without_safetensors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    torch.save(base(), tmp_path / "base" / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"no \*\.safetensors"):
        adapter.add_adapter(read(tmp_path / "actor", factors()), tmp_path / "base", tmp_path / "merged")


@pytest.mark.parametrize("meta", ["", "{", "[]", '{"r": 2}', '{"r": 2, "lora_alpha": null}'])
def test_without_rank_and_alpha_nothing_is_guessed(tmp_path: Path, meta: str) -> None:
    with pytest.raises(SystemFault, match="rank and alpha of the adapter cannot be read"):
        read(tmp_path / "actor", factors(), meta=meta)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model.layers.0.proj.lora_magnitude_vector.default.weight", "is no factor of a plain low-rank adapter"),
        ("model.embed_tokens.lora_embedding_A.default", "is no factor of a plain low-rank adapter"),
        ("model.layers.1.proj.lora_A.default.weight", r"layers\.1\.proj\.weight is not a pair of rank 2"),
    ],
)
def test_another_kind_of_adapter_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(SystemFault, match=text):
        read(tmp_path / "actor", {**factors(), PREFIX + name: torch.zeros(2, 5)})


def test_another_rank_than_the_one_that_scales_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemFault, match="not a pair of rank 2"):
        read(tmp_path / "actor", factors(rank=3))


def test_only_an_adapters_checkpoint_is_one(tmp_path: Path) -> None:
    assert adapter.is_adapter(Shards(write_shards(tmp_path / "adapter", factors()), 1))
    assert not adapter.is_adapter(Shards(write_shards(tmp_path / "full", base()), 1))


def test_what_is_not_sharded_is_the_same_on_every_rank(tmp_path: Path) -> None:
    one, other = {"buffer": torch.ones(3)}, {"buffer": torch.zeros(3)}
    assert Shards(write_shards(tmp_path / "same", one, one), 2).whole("buffer").tolist() == [1, 1, 1]
    with pytest.raises(SystemFault, match="buffer is not sharded, and yet differs"):
        Shards(write_shards(tmp_path / "odd", one, other), 2).whole("buffer")


def test_a_quantised_base_is_told_from_its_headers(tmp_path: Path) -> None:
    heads = {"mtp.fc.weight": torch.zeros(2, dtype=torch.int8)}  # never trained, so it may be anything
    folder = write_base(tmp_path / "base", {**base(), **heads})
    assert tensors.precisions(folder)["model.layers.0.exact.weight"] == "F32"
    packed = {"model.layers.0.proj.weight": torch.zeros(2, dtype=torch.uint8)}
    with pytest.raises(UserError, match=r"is quantised: model\.layers\.0\.proj\.weight is U8"):
        tensors.precisions(write_base(tmp_path / "quantised", {**base(), **packed}))
