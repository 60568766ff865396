"""Every number of the configuration has a bound, and a value outside it is told before anything is planned."""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from stateward.cluster.profile import BOUNDS as PROFILE_BOUNDS
from stateward.cluster.profile import ClusterProfile, Role, load_profile
from stateward.config import Config, load_config
from stateward.config.bounds import BOUNDS, Bound, bound_of
from stateward.errors import UserError

ROOT = Path(__file__).parents[2]
PRACTICE = ROOT / "configs" / "practice.yaml"


def numbers(section: type, at: str = "") -> Iterator[tuple[str, type, str]]:
    """Every field of `section`, and of sections inside it, that is a number: dotted name, section, field."""
    kinds = typing.get_type_hints(section)
    for field in fields(section):
        kind = kinds[field.name]
        if typing.get_origin(kind) is dict and is_dataclass(typing.get_args(kind)[1]):
            yield from numbers(typing.get_args(kind)[1], f"{at}{field.name}.label.")
        for inner in (kind, *typing.get_args(kind)):
            if is_dataclass(inner) and typing.get_origin(kind) is not dict:
                yield from numbers(typing.cast(type, inner), f"{at}{field.name}.")
        if kind in (int, float):
            yield f"{at}{field.name}", section, field.name


NUMBERS = {name: bound_of(section, field, BOUNDS) for name, section, field in numbers(Config)}


def just_outside(bound: Bound) -> list[float]:
    """Of each end that the interval has the first whole number beyond it, or the end itself if that is not inside."""
    ends = [bound.least - 1, bound.above, bound.most + 1, bound.below]
    return [end for end in ends if math.isfinite(end)]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_the_configuration_out_of_its_bounds_is_refused(name: str) -> None:
    outside = just_outside(NUMBERS[name])
    assert outside
    for value in (*outside, *([] if isinstance(_default(name), int) else [math.nan, math.inf])):
        with pytest.raises(UserError) as refusal:
            load_config(PRACTICE, [f"{name}={value:.15g}"])
        assert refusal.value.what.partition("=")[0] == name
        assert refusal.value.why.startswith("it must be ")


@functools.cache
def _practice() -> Config:
    return load_config(PRACTICE, ["evaluate.endpoints.label.model=m"])


def _default(name: str) -> Any:
    value: Any = _practice()
    for part in name.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


@pytest.mark.parametrize("file", sorted((ROOT / "configs").glob("q*.yaml")), ids=lambda path: path.stem)
def test_what_is_shipped_lies_inside(file: Path) -> None:
    assert load_config(file).name == file.stem


def test_ends_that_belong_to_a_bound_are_taken() -> None:
    inside = ["sampling.top_k=-1", "sampling.temperature=0", "sampling.top_p=1.0", "train.lora_rank=0"]
    config = load_config(PRACTICE, [*inside, "curate.test_share=0", "train.max_void_share=1", "evaluate.trials=1"])
    assert (config.sampling.top_k, config.evaluate.trials) == (-1, 1)


@pytest.mark.parametrize("override", ["serve.extra.pipeline-parallel-size=0", "simulator.extra.data-parallel-size=two"])
def test_parallel_ranks_in_the_flags_of_an_engine(override: str) -> None:
    with pytest.raises(UserError, match=override) as refusal:
        load_config(PRACTICE, [override])
    assert refusal.value.why == "it must be a whole number, at least 1"


@pytest.mark.parametrize(("name", "section", "field"), [*numbers(ClusterProfile)], ids=lambda value: str(value))
def test_a_number_of_a_profile_out_of_its_bounds_is_refused(
    name: str, section: type, field: str, tmp_path: Path
) -> None:
    bound = bound_of(section, field, PROFILE_BOUNDS)
    for value in just_outside(bound):
        roles = {role: {"partition": "p"} for role in ("service", "train", "sample", "small", "simulator")}
        tree: dict[str, Any] = {"name": "x", **roles}
        node, *rest = name.split(".")
        if rest:
            tree[node][rest[0]] = int(value)
        else:
            tree[node] = int(value)
        path = tmp_path / "profile.yaml"
        path.write_text(str(tree))
        with pytest.raises(UserError, match=f"{name}={value:.0f}"):
            load_profile(path)
    assert section in (Role, ClusterProfile)
