"""The arithmetic of a step, and what is refused before a GPU hour is spent."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.config import Config, load_config
from stateward.errors import UserError
from stateward.training.layout import resolve_layout

FULL = Path(__file__).parents[2] / "configs" / "q38_full.yaml"


PUBLISHED = load_config(FULL)


def config_of(*overrides: str) -> Config:
    return load_config(FULL, overrides)


def test_the_published_layout() -> None:
    layout = resolve_layout(config_of())
    assert (layout.world_size, layout.data_parallel, layout.replicas) == (24, 6, 6)
    assert (layout.episodes, layout.episodes_per_rank) == (144, 24)
    assert (layout.context, layout.prompt_tokens, layout.response_tokens) == (133_120, 26_624, 106_496)


def test_the_bound_of_a_response_is_told_as_what_it_is() -> None:
    """Only the sum is enforced: an episode with a short prompt may answer with more than 106,496 tokens."""
    told = resolve_layout(config_of()).describe()[-1]
    assert told == (
        "tokens: an episode at most 133120, its prompt at most 26624; the longest prompt leaves 106496 for the response"
    )


def test_the_episodes_of_a_step_are_a_multiple_of_the_devices() -> None:
    """Two data-parallel ranks of four devices each share 20 episodes; Verl asserts that eight do."""
    with pytest.raises(UserError, match="number of devices: 8 does not divide 5 x 4 = 20 episodes"):
        resolve_layout(config_of("train.nodes=1", "train.groups_per_step=5", "train.group_size=4"))


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("train.ulysses=5", "5 does not divide train.nodes x train.gpus_per_node = 24"),
        ("train.rollout_tensor_parallel=7", "7 does not divide"),
        ("train.groups_per_step=17", "17 x 8 = 136 episodes"),
        ("train.micro_batch_per_gpu=5", "24 episodes a rank"),
        ("train.group_size=1", "compares the episodes of a group"),
        ("train.steps=0", "train.steps=0"),
        ("policy.max_prompt_tokens=133120", "leaves no room"),
        ("train.rollout_tensor_parallel=12", "does not fit the nodes"),
        ("train.remove_padding=false", "train.ulysses=4 with train.remove_padding=false"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_numbers(override: str, text: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve_layout(config_of(override))
    assert text in str(caught.value)


@settings(deadline=None)  # the machine may be busy
@given(
    nodes=st.integers(1, 6),
    gpus=st.sampled_from([1, 2, 4, 8]),
    ulysses=st.integers(1, 16),
    tensor=st.integers(1, 16),
    groups=st.integers(1, 48),
    size=st.integers(2, 16),
    micro=st.integers(1, 8),
)
def test_every_accepted_layout_uses_every_device_and_every_episode_once(
    nodes: int, gpus: int, ulysses: int, tensor: int, groups: int, size: int, micro: int
) -> None:
    config = copy.deepcopy(PUBLISHED)
    train = config.train
    train.nodes, train.gpus_per_node, train.ulysses, train.rollout_tensor_parallel = nodes, gpus, ulysses, tensor
    train.groups_per_step, train.group_size, train.micro_batch_per_gpu = groups, size, micro
    try:
        layout = resolve_layout(config)
    except UserError:
        return
    assert layout.data_parallel * layout.sequence_parallel == layout.world_size == nodes * gpus
    assert layout.replicas * layout.tensor_parallel == layout.world_size
    assert layout.episodes_per_rank * layout.data_parallel == groups * size
    assert layout.episodes_per_rank % micro == 0
    assert layout.episodes % layout.world_size == 0  # verl 0.9.1, validate_config
