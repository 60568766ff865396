"""Plots of a pool as SVG. Matplotlib is imported here and nowhere else, when a plot is drawn."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stateward.difficulty.bands import Bands
from stateward.difficulty.decide import DROP, Decision

_KEPT, _LEFT = "#2b6cb0", "#a0aec0"
#: The same input gives the same bytes: no date, no random ids, text as text.
_STYLE = {
    "svg.hashsalt": "stateward",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def can_plot() -> bool:
    """Whether matplotlib is installed; it comes with the extras ``practice`` and ``cluster``."""
    return importlib.util.find_spec("matplotlib") is not None


def pool_plots(decisions: Sequence[Decision], bands: Bands) -> dict[str, bytes]:
    """File name → SVG: the histogram of k/n, posterior mass per band, and how many trials each decision took."""
    probed = [d for d in decisions if d.counts.valid]
    return {"rates.svg": _rates(probed, bands), "bands.svg": _bands(probed, bands), "trials.svg": _trials(probed)}


def drift_plot(moves: Mapping[tuple[str, str], int], bands: Bands) -> bytes:
    """SVG of the tasks that went from one band (row) to another (column)."""
    names = list(bands.names)
    table = np.array([[moves.get((before, after), 0) for after in names] for before in names])
    with _axes(5.4, 4.4, left=0.24, bottom=0.28) as (figure, axes):
        axes.imshow(table, cmap="Blues")
        for (row, column), number in np.ndenumerate(table):
            if number:
                colour = "white" if number > table.max() / 2 else "black"
                axes.text(column, row, str(number), ha="center", va="center", color=colour)
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="band for the later checkpoint", ylabel="band in the pool")
        return _svg(figure)


def _rates(probed: Sequence[Decision], bands: Bands) -> bytes:
    edges = np.linspace(0, 1, 21)
    kept, left = (
        [d.counts.passes / d.counts.valid for d in probed if (d.decision != DROP) is taken] for taken in (True, False)
    )
    with _axes(6.0, 3.2) as (figure, axes):
        axes.hist([kept, left], edges, stacked=True, color=[_KEPT, _LEFT], label=["taken", "not taken"])
        for bound in bands.bounds[:-1]:
            axes.axvline(bound, color="black", linewidth=0.6, linestyle=":")
        axes.set(xlabel="passes / valid trials (dotted: bounds of the bands)", ylabel="tasks", xlim=(0, 1))
        _legend(axes)
        return _svg(figure)


def _bands(probed: Sequence[Decision], bands: Bands) -> bytes:
    at = np.arange(len(bands.names))
    mass = [sum(d.estimate.mass[name] for d in probed) for name in bands.names]
    assigned = Counter(d.estimate.band for d in probed)
    with _axes(6.0, 3.2) as (figure, axes):
        axes.bar(at - 0.2, mass, 0.4, color=_KEPT, label="posterior mass")
        axes.bar(
            at + 0.2,
            [assigned[name] for name in bands.names],
            0.4,
            color=_LEFT,
            label="tasks with it as heaviest band",
        )
        axes.set_xticks(at, [f"{name}\n{'kept' if name in bands.keep else 'not kept'}" for name in bands.names])
        axes.set(ylabel="tasks")
        _legend(axes)
        return _svg(figure)


def _trials(probed: Sequence[Decision]) -> bytes:
    most = max((d.counts.valid for d in probed), default=1)
    at = np.arange(1, most + 1)
    kept, left = (
        np.bincount([d.counts.valid for d in probed if (d.decision != DROP) is taken], minlength=most + 1)[1:]
        for taken in (True, False)
    )
    with _axes(6.0, 3.2) as (figure, axes):
        axes.bar(at, kept, color=_KEPT, label="taken")
        axes.bar(at, left, bottom=kept, color=_LEFT, label="not taken")
        axes.set(xlabel="valid trials that the decision took", ylabel="tasks")
        axes.xaxis.get_major_locator().set_params(integer=True)
        _legend(axes)
        return _svg(figure)


@contextlib.contextmanager
def _axes(width: float, height: float, left: float = 0.12, bottom: float = 0.2) -> Iterator[tuple[Any, Any]]:
    """A figure of this size in inches with one axes, in our style, which must hold until it is saved.

    `left` and `bottom` are margins, as shares of the size.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        # Fixed margins: matplotlib's layout engine would double the time that a plot takes.
        yield figure, figure.add_axes((left, bottom, 0.97 - left, 0.88 - bottom))


def _legend(axes: Any) -> None:
    """Above the axes, where it hides nothing."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, borderaxespad=0.3)


def _svg(figure: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()
