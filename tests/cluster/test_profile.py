"""What a cluster profile may say, and what of it reaches the doctor's probe of the nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateward.cluster.node_probe import _options
from stateward.cluster.profile import Role, load_profile
from stateward.errors import UserError


def written(folder: Path, sample: str, more: str = "") -> Path:
    path = folder / "site.yaml"
    roles = "".join(f"{name}: {{ partition: p }}\n" for name in ("service", "train", "small"))
    path.write_text(f"name: site\n{more}{roles}sample: {{ partition: p, {sample} }}\n")
    return path


def test_a_time_without_quotes_is_refused(tmp_path: Path) -> None:
    """YAML 1.1 reads it in base 60: 43200, which Slurm would take for 30 days of minutes."""
    with pytest.raises(UserError, match=r"sample\.time is the number 43200") as caught:
        load_profile(written(tmp_path, "time: 12:00:00"))
    assert '"12:00:00"' in caught.value.do
    assert load_profile(written(tmp_path, 'time: "12:00:00"')).sample.time == "12:00:00"


@pytest.mark.parametrize(("time", "seconds", "fits"), [("0:06:00", 300, False), ("0:06:01", 300, True)])
def test_a_job_lasts_longer_than_the_lead_of_its_signal(tmp_path: Path, time: str, seconds: int, fits: bool) -> None:
    path = written(tmp_path, f'time: "{time}"', f"signal_seconds: {seconds}\n")
    if fits:
        assert load_profile(path).sample.time == time
        return
    with pytest.raises(UserError, match=r"sample\.time=0:06:00 is 360 s") as caught:
        load_profile(path)
    assert "stopped at once" in caught.value.why


def test_a_word_that_is_no_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a Slurm time"):
        load_profile(written(tmp_path, "time: a while"))


def test_the_doctor_probes_with_all_that_chooses_a_roles_nodes() -> None:
    role = Role(partition="gpu", constraint="a100", qos="short", extra={"reservation": "course", "mail-type": "END"})
    assert dict(_options(role)) == {
        "partition": "gpu",
        "qos": "short",
        "constraint": "a100",
        "reservation": "course",
    }
    assert _options(Role(partition="gpu")) == (("partition", "gpu"),)
