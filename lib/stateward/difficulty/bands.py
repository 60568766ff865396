"""Success-rate bands, and which of them a training pool keeps."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stateward.config import BandConfig
from stateward.errors import UserError, nearest

#: Bands that a profile keeps. A low-rank adapter learns little from tasks that already succeed most of the time.
PROFILES: dict[str, tuple[str, ...]] = {
    "full": ("difficult", "intermediate", "frequently"),
    "lora": ("difficult", "intermediate"),
}


@dataclass(frozen=True)
class Bands:
    """Adjacent bands over [0, 1], hardest first.

    Attributes:
        names: [b], one a band.
        bounds: [b], upper ends, ascending; the last is 1. The first band begins at 0.
        keep: names of the bands whose tasks are kept.
    """

    names: tuple[str, ...]
    bounds: tuple[float, ...]
    keep: tuple[str, ...]

    @classmethod
    def from_config(cls, config: BandConfig) -> Bands:
        """Checked bands. Raises UserError for an unknown or repeated name, bounds out of order, or nothing kept."""
        names, bounds, keep = tuple(config.names), tuple(float(b) for b in config.bounds), tuple(config.keep)
        where = "curate.bands"
        if len(names) != len(bounds):
            raise UserError(
                f"{where}: {len(names)} names and {len(bounds)} bounds",
                "each bound is the upper end of the band of the same position",
                "give as many bounds as names",
            )
        if len(set(names)) != len(names):
            raise UserError(f"{where}.names has a name twice: {', '.join(names)}", do="give each band its own name")
        edges = (0.0, *bounds)
        if any(not low < high for low, high in itertools.pairwise(edges)) or edges[-1] != 1.0:
            raise UserError(
                f"{where}.bounds is {list(bounds)}",
                "the upper ends must ascend from above 0 and end at exactly 1.0, so that the bands tile [0, 1]",
                "for instance [0.08, 0.40, 0.60, 0.90, 1.0]",
            )
        for name in keep:
            if name not in names:
                raise UserError(f"{where}.keep names an unknown band {name!r}", do=nearest(name, names))
        if not keep:
            raise UserError(f"{where}.keep is empty", "no task could be selected", f"keep some of {', '.join(names)}")
        return cls(names, bounds, tuple(n for n in names if n in keep))

    @classmethod
    def profile(cls, name: str) -> Bands:
        """The published bands with the selection of a profile: ``full`` or ``lora``."""
        if name not in PROFILES:
            raise UserError(f"unknown profile {name!r}", do=nearest(name, PROFILES))
        return cls.from_config(BandConfig(keep=list(PROFILES[name])))

    @property
    def edges(self) -> npt.NDArray[np.float64]:
        """[b + 1] ends of the bands, 0 and 1 included."""
        return np.array((0.0, *self.bounds))

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """[b] whether a band is kept."""
        return np.array([name in self.keep for name in self.names])

    def index_of(self, rate: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Positions of the bands that hold these success rates; a rate on a bound belongs to the easier band."""
        found = np.searchsorted(np.array(self.bounds), np.asarray(rate, float), side="right")
        return np.minimum(found, len(self.names) - 1)
