"""The merged checkpoint against its base: every way in which it can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateward.errors import SystemFault, UserError
from stateward.training import tensors

torch = pytest.importorskip("torch")


def base() -> dict[str, Any]:
    torch.manual_seed(0)
    return {f"layer.{i}.weight": torch.randn(4, 3, dtype=torch.bfloat16) for i in range(3)}


def save(folder: Path, *files: dict[str, Any]) -> Path:
    from safetensors.torch import save_file

    folder.mkdir()
    for number, content in enumerate(files):
        save_file(content, folder / f"model-{number}.safetensors")
    return folder


def changed(name: str = "layer.1.weight", **replaced: Any) -> dict[str, Any]:
    new = base()
    new[name] = new[name] + 0.5
    return {**new, **{f"layer.{key[1:]}.weight": value for key, value in replaced.items()}}


def test_a_trained_checkpoint(tmp_path: Path) -> None:
    found = tensors.compare(save(tmp_path / "base", base()), save(tmp_path / "merged", changed()))
    assert (found.tensors, found.changed, found.parameters) == (3, 1, 36)
    assert found.unchanged == ["layer.0.weight", "layer.2.weight"]
    assert found.largest_in == "layer.1.weight"
    assert found.largest == pytest.approx(0.5, abs=0.02)


def test_the_files_may_be_cut_differently(tmp_path: Path) -> None:
    new = changed()
    first = {"layer.0.weight": new.pop("layer.0.weight")}
    assert tensors.compare(save(tmp_path / "base", base()), save(tmp_path / "merged", first, new)).changed == 1


@pytest.mark.parametrize(
    ("merged", "text"),
    [
        (base(), "nothing was trained"),
        (changed(_2=torch.zeros(3, 4, dtype=torch.bfloat16)), r"\(4, 3\) torch.bfloat16 became \(3, 4\)"),
        (changed(_2=torch.zeros(4, 3)), "became .* torch.float32"),
        (changed(_2=torch.full((4, 3), float("nan"), dtype=torch.bfloat16)), "not finite"),
        (changed(_2=torch.full((4, 3), float("inf"), dtype=torch.bfloat16)), "not finite"),
        (changed(_9=torch.zeros(1)), "layer.9.weight is new"),
        ({k: v for k, v in changed().items() if k != "layer.0.weight"}, "layer.0.weight is missing"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, merged: dict[str, Any], text: str) -> None:
    with pytest.raises(SystemFault, match=text):
        tensors.compare(save(tmp_path / "base", base()), save(tmp_path / "merged", merged))


def shards_swapped(weight: Any) -> Any:
    return torch.cat(list(weight.chunk(2))[::-1])


def one_shard_twice(weight: Any) -> Any:
    return torch.cat([weight.chunk(2)[0]] * 2)


def replica_added(weight: Any) -> Any:
    return weight + weight


@pytest.mark.parametrize("corrupt", [shards_swapped, one_shard_twice, replica_added, torch.zeros_like])
def test_a_tensor_that_was_put_together_wrongly_moved_too_far(tmp_path: Path, corrupt: Any) -> None:
    """Right names, shapes and dtypes, all finite: only the values tell."""
    new = {name: weight + 1e-3 for name, weight in base().items()}
    reach = tensors.adam_reach(1e-4, 0.0, 10)
    folder = save(tmp_path / "base", base())
    assert tensors.compare(folder, save(tmp_path / "right", new), reach).changed == 3
    new["layer.2.weight"] = corrupt(new["layer.2.weight"])
    merged = save(tmp_path / "wrong", new)
    assert tensors.compare(folder, merged).changed == 3
    with pytest.raises(SystemFault, match=r"layer\.2\.weight: .* further than the optimizer can move them"):
        tensors.compare(folder, merged, reach)


@pytest.mark.parametrize("sparse", [1, 3, 20])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_stays_within_its_reach(sparse: int, decay: float) -> None:
    """With gradients that are large and rare, which move a weight furthest."""
    steps, rate = 20, 1e-2
    old = torch.randn(200, dtype=torch.bfloat16)
    weight = old.float().requires_grad_()
    optimizer = torch.optim.AdamW([weight], lr=rate, betas=(0.9, 0.999), weight_decay=decay)
    for step in range(1, steps + 1):
        weight.grad = torch.randn(200).abs() * (10.0**step if step % sparse == 0 else 0.0)
        optimizer.step()
    new = weight.detach().bfloat16().float()
    reach = tensors.adam_reach(rate, decay, steps)
    limit = reach.absolute + reach.relative * torch.maximum(old.float().abs(), new.abs())
    assert ((new - old.float()).abs() <= limit).all()


def test_heads_that_training_never_saw_are_carried_over(tmp_path: Path) -> None:
    old = {**base(), "mtp.0.weight": torch.ones(2, dtype=torch.bfloat16)}
    folder, merged = save(tmp_path / "base", old), save(tmp_path / "merged", changed())
    with pytest.raises(SystemFault, match=r"mtp\.0\.weight is missing"):
        tensors.compare(folder, merged)
    assert tensors.carry_over(folder, merged) == ["mtp.0.weight"]
    found = tensors.compare(folder, merged)
    assert found.carried_over == ["mtp.0.weight"]
    index = json.loads((merged / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(old)
    assert all((merged / name).is_file() for name in index["weight_map"].values())


def test_nothing_to_carry_over(tmp_path: Path) -> None:
    assert tensors.carry_over(save(tmp_path / "base", base()), save(tmp_path / "merged", changed())) == []
    assert not (tmp_path / "merged" / "model.safetensors.index.json").exists()


def test_no_weights(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(UserError, match=r"no \*\.safetensors"):
        tensors.weight_files(tmp_path / "m")
