"""The posterior and its bands, against the worked example and against numerical integration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta

from stateward.config import BandConfig
from stateward.difficulty import Bands
from stateward.difficulty.posterior import band_index, band_mass, interval, posterior
from stateward.errors import UserError

FULL = Bands.profile("full")


def test_worked_example() -> None:
    assert [float(x) for x in posterior(3, 8)] == [3.5, 5.5]
    mass = band_mass(3, 8, FULL)
    assert f"{mass[1]:.1%}" == "54.0%"
    assert FULL.names[int(band_index(3, 8, FULL))] == "difficult"


@pytest.mark.parametrize(("k", "n"), [(0, 0), (0, 8), (3, 8), (8, 8), (7, 16), (20, 20)])
def test_masses_are_integrals_of_the_density(k: int, n: int) -> None:
    density = beta(k + 0.5, n - k + 0.5).pdf
    for i, mass in enumerate(band_mass(k, n, FULL)):
        low, high = FULL.edges[i : i + 2]
        # Ends where the density is infinite are left out of the quadrature and put back through the other bands.
        if low > 0 and high < 1:
            assert mass == pytest.approx(quad(density, low, high)[0], abs=1e-9)
    assert band_mass(k, n, FULL).sum() == pytest.approx(1, abs=1e-12)


def test_arrays_broadcast() -> None:
    k = np.arange(9)
    mass = band_mass(k, 8, FULL)
    assert mass.shape == (9, 5)
    assert [FULL.names[i] for i in band_index(k, 8, FULL)] == [
        "rarely", "difficult", "difficult", "difficult", "intermediate",
        "frequently", "frequently", "frequently", "nearly_always",
    ]  # fmt: skip


def test_ties_go_to_the_harder_band() -> None:
    symmetric = Bands.from_config(BandConfig(names=["hard", "easy"], bounds=[0.5, 1.0], keep=["hard"]))
    for n in range(0, 33, 2):
        assert int(band_index(n // 2, n, symmetric)) == 0
    outer = Bands.from_config(BandConfig(names=["a", "b", "c"], bounds=[0.3, 0.7, 1.0], keep=["b"]))
    mass = band_mass(0, 0, outer)
    assert mass[0] == pytest.approx(mass[2], abs=1e-14)
    assert int(band_index(0, 0, outer)) == 0


def test_interval_is_equal_tailed() -> None:
    low, high = interval(3, 8, 0.9)
    assert beta(3.5, 5.5).cdf([low, high]) == pytest.approx([0.05, 0.95])


@pytest.mark.parametrize(("k", "n"), [(-1, 3), (4, 3)])
def test_impossible_counts(k: int, n: int) -> None:
    with pytest.raises(ValueError, match=r"0\.\.valid"):
        posterior(k, n)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"keep": ["dificult"]}, "unknown band 'dificult'"),
        ({"keep": []}, "keep is empty"),
        ({"bounds": [0.08, 0.40, 0.60, 0.90]}, "5 names and 4 bounds"),
        ({"bounds": [0.08, 0.40, 0.40, 0.90, 1.0]}, "ascend"),
        ({"bounds": [0.08, 0.40, 0.60, 0.90, 0.99]}, "1.0"),
        ({"bounds": [0.0, 0.40, 0.60, 0.90, 1.0]}, "above 0"),
        ({"names": ["a", "a", "b", "c", "d"], "keep": ["a"]}, "twice"),
    ],
)
def test_band_mistakes(change: dict[str, list[str]], says: str) -> None:
    with pytest.raises(UserError, match=says.replace(".", r"\.")) as error:
        Bands.from_config(BandConfig(**change))
    assert says in str(error.value)


def test_unknown_band_names_the_nearest() -> None:
    with pytest.raises(UserError) as error:
        Bands.from_config(BandConfig(keep=["dificult"]))
    assert "did you mean 'difficult'?" in str(error.value)


def test_profiles() -> None:
    assert FULL.keep == ("difficult", "intermediate", "frequently")
    assert Bands.profile("lora").keep == ("difficult", "intermediate")
    with pytest.raises(UserError, match="unknown profile"):
        Bands.profile("lorra")
