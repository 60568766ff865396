"""What a run cost: tokens times list prices, and GPU-hours from the allocation."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from stateward.errors import UserError, nearest
from stateward.outcome import fingerprint


@dataclass(frozen=True, kw_only=True)
class Price:
    """US dollars per million tokens. `cached` is for prompt tokens that the provider's cache served.

    `source` says where the price is from, `date` when it was so (``YYYY-MM-DD``).
    """

    input: float
    cached: float
    output: float
    source: str = ""
    date: str = ""

    def of(self, prompt: int, cached: int, completion: int) -> float:
        """Dollars. `prompt` includes the cached tokens and `completion` the reasoning, as providers and vLLM count."""
        return ((prompt - cached) * self.input + cached * self.cached + completion * self.output) / 1e6


@dataclass(frozen=True, kw_only=True)
class PriceList:
    """Prices by model name, and of one GPU-hour by GPU name. `identity` tells one list from another."""

    models: dict[str, Price]
    gpu_hour: dict[str, float] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        models = {k: {"input": v.input, "cached": v.cached, "output": v.output} for k, v in self.models.items()}
        return fingerprint({"models": models, "gpu_hour": self.gpu_hour})

    def price(self, model: str) -> Price | None:
        """The price of `model`, given by name or as the path of a checkpoint whose folder has that name."""
        return self.models.get(model) or self.models.get(Path(model).name)


def load_prices(path: Path) -> PriceList:
    """Read a price list such as ``configs/prices.yaml``.

    Raises:
        UserError: not there, not YAML, an unknown key, a price that is not a number of at least 0.
    """
    try:
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such price list", do="name one with --prices, such as configs/prices.yaml"
        ) from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML", str(error)) from error
    node = node or {}
    _only(path, "the file", node, {"models", "gpu_hour"})
    models = {}
    for name, row in (node.get("models") or {}).items():
        _only(path, f"models.{name}", row, {"input", "cached", "output", "source", "date"})
        models[str(name)] = Price(
            input=_number(path, f"models.{name}", row, "input"),
            cached=_number(path, f"models.{name}", row, "cached"),
            output=_number(path, f"models.{name}", row, "output"),
            source=str(row.get("source", "")),
            date=_date(path, f"models.{name}", row),
        )
    hours = {str(k): _number(path, "gpu_hour", node["gpu_hour"], k) for k in node.get("gpu_hour") or {}}
    return PriceList(models=models, gpu_hour=hours)


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Dollars. NaN with a reason in `unpriced` where a model that was used has no price.

    `by_party`: policy, user, judge. `per_success`: per passed trial. `per_reliable`: per task with k of k passed.
    """

    total: float
    by_party: dict[str, float]
    per_success: float
    per_reliable: float
    unpriced: tuple[str, ...] = ()


def party_models(config: dict[str, Any], policy: str) -> dict[str, str]:
    """Model names of policy, user and judge, to look their prices up. `config`: of the stage's manifest.

    A checkpoint that the campaign itself made (``…/merged``) is priced as the model it was trained from.
    """
    episode = config.get("episode", {})
    if policy.rstrip("/").endswith("/merged") or not policy:
        policy = config.get("policy", {}).get("model", policy)
    return {"policy": policy, **{party: episode.get(party, {}).get("model", "") for party in ("user", "judge")}}


def run_costs(
    tokens: dict[str, dict[str, int]],
    models: dict[str, str],
    prices: PriceList,
    *,
    successes: int,
    reliable: int,
) -> Costs:
    """Costs of a run from its tokens by party (`stateward.evaluation.usage.token_totals`) and the parties' models."""
    by_party: dict[str, float] = {}
    unpriced = []
    for party, used in tokens.items():
        if not any(used[k] for k in ("prompt", "completion")):
            continue
        model = models.get(party, "")
        price = prices.price(model)
        if price is None:
            unpriced.append(f"{party} ({model or 'model not stated'})")
            by_party[party] = math.nan
        else:
            by_party[party] = price.of(used["prompt"], used["cached"], used["completion"])
    return costs_of(math.fsum(by_party.values()), by_party, successes, reliable, tuple(unpriced))


def costs_of(
    total: float, by_party: dict[str, float], successes: int, reliable: int, unpriced: tuple[str, ...] = ()
) -> Costs:
    """Costs per success and per reliable task; NaN where there is none of either."""
    return Costs(
        total=total,
        by_party=by_party,
        per_success=total / successes if successes else math.nan,
        per_reliable=total / reliable if reliable else math.nan,
        unpriced=unpriced,
    )


def _only(path: Path, where: str, node: Any, keys: set[str]) -> None:
    if not isinstance(node, dict):
        raise UserError(f"{path}: {where} is not a mapping", do=f"write the keys {', '.join(sorted(keys))}")
    for key in node:
        if key not in keys:
            raise UserError(f"{path}: {where} has an unknown key {key!r}", do=nearest(str(key), keys))


def _date(path: Path, where: str, row: dict[str, Any]) -> str:
    value = str(row.get("date", ""))
    try:
        return datetime.date.fromisoformat(value).isoformat() if value else ""
    except ValueError:
        raise UserError(f"{path}: {where}.date is {value!r}", "it is no date", "write it as 2026-01-31") from None


def _number(path: Path, where: str, node: dict[str, Any], key: str) -> float:
    value = node.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UserError(f"{path}: {where}.{key} is {value!r}", "a price is a number of dollars, at least 0")
    return float(value)
