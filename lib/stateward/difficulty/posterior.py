"""What trials say of a task's success rate: p | k passes of m valid trials ~ Beta(k + 1/2, m - k + 1/2).

The prior is Jeffreys' Beta(1/2, 1/2), the reference prior of a binomial rate (Brown, Cai and DasGupta, "Interval
Estimation for a Binomial Proportion", Statistical Science 16, 2001, section 4.3). Voids are no trials: they count
neither as passes nor as valid. Every function takes scalars or arrays and broadcasts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, betaincinv

from stateward.difficulty.bands import Bands

PRIOR = 0.5  # both parameters

#: Masses nearer than this are a tie. Symmetric posteriors over symmetric bands tie exactly, but for rounding.
TIE = 1e-12


def posterior(passes: npt.ArrayLike, valid: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Parameters (alpha, beta) of the posterior. Raises ValueError unless 0 <= passes <= valid."""
    k, m = np.asarray(passes, float), np.asarray(valid, float)
    if np.any(k < 0) or np.any(k > m):
        raise ValueError(f"passes must lie in 0..valid; got {passes!r} of {valid!r}")
    return k + PRIOR, m - k + PRIOR


def band_mass(passes: npt.ArrayLike, valid: npt.ArrayLike, bands: Bands) -> npt.NDArray[np.float64]:
    """Posterior probability of each band, shape [..., b]; sums to 1 over the last axis."""
    alpha, beta = posterior(passes, valid)
    return np.asarray(np.diff(betainc(alpha[..., None], beta[..., None], bands.edges), axis=-1))


def band_index(passes: npt.ArrayLike, valid: npt.ArrayLike, bands: Bands) -> npt.NDArray[np.int64]:
    """Position of the band with most mass, shape [...]; of tied bands, the harder."""
    return heaviest(band_mass(passes, valid, bands))


def heaviest(mass: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Position of the largest mass along the last axis; of tied ones the first, which is the harder band."""
    return np.asarray(np.argmax(mass >= mass.max(axis=-1, keepdims=True) - TIE, axis=-1))


def interval(
    passes: npt.ArrayLike, valid: npt.ArrayLike, level: float = 0.95
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Equal-tailed credible interval (low, high) of the success rate."""
    alpha, beta = posterior(passes, valid)
    tail = (1 - level) / 2
    return np.asarray(betaincinv(alpha, beta, tail)), np.asarray(betaincinv(alpha, beta, 1 - tail))
