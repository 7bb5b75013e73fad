"""Routing of tokens to experts: how many tokens of a rank go to each expert, by layer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from genie.errors import UsageError
from genie.inputs.content import ContentError, read_text

EXPONENT_MAX = 10.0
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Routing:
    """Shares of the tokens that experts get. All ranks send alike, so that what arrives follows from what is sent.

    exponent: of a Zipf distribution; each layer has an order of the experts of its own, drawn from `seed`.
    layers: or the shares themselves, a row a layer; further layers begin again with the first row.
    """

    exponent: float = 0.0
    seed: int = 1
    layers: tuple[tuple[float, ...], ...] = ()

    def counts(self, layer: int, experts: int, tokens: int, per_token: int) -> Counts:
        """Return the tokens of a rank for each expert; together `tokens` * `per_token`, each at most `tokens`."""
        if self.layers:
            weights = np.array(self.layers[layer % len(self.layers)], np.float64)
        else:
            weights = 1 / np.arange(1, experts + 1) ** self.exponent
            weights = np.random.default_rng([self.seed, layer]).permutation(weights)
        return apportioned(weights, tokens * per_token, tokens)


def apportioned(weights: NDArray[np.float64], total: int, most: int) -> Counts:
    """Return whole numbers in proportion to the weights that add up to `total`, each at most `most`."""
    found = np.zeros(len(weights), np.int64)
    open_ = weights > 0
    if open_.sum() * most < total:
        open_ = np.ones(len(weights), np.bool_)
        weights = weights + 1e-9 * weights.max()
    while (left := total - int(found.sum())) > 0:
        room = open_ & (found < most)
        exact = np.where(room, weights, 0.0)
        exact = exact / exact.sum() * left
        more = np.minimum(np.floor(exact).astype(np.int64), most - found)
        if not more.any():  # the largest remainders
            order = np.argsort(-np.where(room, exact, -1.0), kind="stable")[: min(left, int(room.sum()))]
            more[order] = 1
        found += more
    return found


def routing_of(text: str, seed: int, experts: int) -> Routing | None:
    """Return the routing of an option: `balanced` (None), `zipf:EXPONENT` or a JSON file. Raises UsageError."""
    if text == "balanced":
        return None
    kind, _, number = text.partition(":")
    if kind == "zipf":
        try:
            exponent = float(number)
        except ValueError:
            exponent = -1.0
        if not 0 < exponent <= EXPONENT_MAX:
            raise UsageError(f"--routing {text}: give an exponent above 0, up to {EXPONENT_MAX:g}, such as zipf:1.2")
        return Routing(exponent, seed)
    return Routing(layers=_read(Path(text), experts))


def _read(path: Path, experts: int) -> tuple[tuple[float, ...], ...]:
    """Read a list of lists: for each layer with experts, the tokens or the shares of each expert."""
    try:
        rows = json.loads(read_text(path))
    except OSError as error:
        raise UsageError(
            f"--routing {path}: cannot be read: {error.strerror}; give balanced, zipf:EXPONENT or a JSON file"
        ) from error
    except (ContentError, ValueError, RecursionError) as error:
        raise UsageError(f"--routing {path}: is no JSON: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"--routing {path}: give a list with a list of numbers for each layer")
    for layer, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != experts:
            raise UsageError(f"--routing {path}: layer {layer} has not one number for each of {experts} experts")
        if not all(type(each) in (int, float) and 0 <= each < 1e18 for each in row) or not any(row):
            raise UsageError(f"--routing {path}: layer {layer}: give numbers from 0, not all of them 0")
    return tuple(tuple(map(float, row)) for row in rows)
