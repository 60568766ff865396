"""Relative paths: those of a file from its folder, those of the command line from the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateward.cluster.profile import load_profile
from stateward.config import load_config
from stateward.config.load import resolved_overrides

CONFIG = """
name: here
run_dir: runs/a
tasks: { dataset: world, train: lists/train.yaml, benchmark: inside_the_dataset.yaml }
policy: { model: ../models/m, tool_parser: hermes, max_model_len: 2048, max_prompt_tokens: 1024 }
curate: { exclude: [old.yaml, /abs/x.yaml] }
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project" / "lists").mkdir(parents=True)
    (tmp_path / "project" / "lists" / "train.yaml").touch()
    (tmp_path / "project" / "c.yaml").write_text(CONFIG)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "project"


@pytest.mark.parametrize("named", ["../project/c.yaml", "{}/c.yaml"])
def test_a_files_paths_are_relative_to_its_folder(project: Path, named: str) -> None:
    config = load_config(named.format(project))
    assert config.run_dir == str(project / "runs/a")
    assert config.tasks.dataset == str(project / "world")
    assert config.tasks.train == str(project / "lists/train.yaml")
    assert config.tasks.benchmark == "inside_the_dataset.yaml"
    assert config.policy.model == str(project.parent / "models/m")
    assert config.curate.exclude == [str(project / "old.yaml"), "/abs/x.yaml"]


def test_an_overrides_path_is_relative_to_the_working_directory(project: Path) -> None:
    given = ["run_dir=b", "tasks={dataset: ../w}", "policy.model=practice", "train.steps=3"]
    config = load_config(project / "c.yaml", given)
    here = project.parent / "elsewhere"
    assert (config.run_dir, config.tasks.dataset) == (str(here / "b"), str(project.parent / "w"))
    assert config.policy.model == "practice"


def test_interpolations_have_the_values_of_the_whole_configuration(project: Path) -> None:
    (project / "c.yaml").write_text(CONFIG.replace("runs/a", "runs/${name}"))
    config = load_config(project / "c.yaml", ["name=other", "policy.model=${run_dir}/m"])
    assert config.run_dir == str(project / "runs/other")
    assert config.policy.model == str(project / "runs/other/m")


def test_overrides_for_a_job_mean_the_same_from_another_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["run_dir=it's b", "tasks={dataset: ../w}", "curate.exclude=[x.yaml]", "train.steps=3"]
    here = load_config(project / "c.yaml", given)
    absolute = resolved_overrides(given)
    assert absolute[-1] == "train.steps=3"
    monkeypatch.chdir("/")
    assert load_config(project / "c.yaml", absolute) == here


def test_a_profiles_paths_are_relative_to_its_folder(project: Path) -> None:
    roles = "".join(f"{name}: {{ partition: p }}\n" for name in ("service", "train", "sample", "small"))
    container = "container: { image: a.sif, env_file: /etc/keys, binds: ['data:/data:ro'] }\n"
    (project / "site.yaml").write_text(f"name: site\ntypesense: bin/typesense-server\n{container}{roles}")
    profile = load_profile("../project/site.yaml")
    assert profile.typesense == str(project / "bin/typesense-server")
    assert profile.container.image == str(project / "a.sif")
    assert profile.container.env_file == "/etc/keys"
    assert profile.container.binds == [f"{project}/data:/data:ro"]
