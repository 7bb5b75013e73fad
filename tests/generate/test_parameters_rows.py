"""The parameters of a layer one by one: their sizes add up to the counts."""

from __future__ import annotations

from math import prod

import pytest

from genie.generate.parameters import layer_of, matrices_of
from genie.generate.shipped import find_model, shipped


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("tensor", [1, 2])
def test_parameters_of_a_layer_add_up(name: str, tensor: int) -> None:
    model = find_model(name)
    for layer in {0, model.layers // 2, model.layers - 1}:
        found = layer_of(model, layer)
        split = (found.attention + found.dense + found.shared) // tensor
        whole = found.attention_whole + found.norms + found.dense_whole + found.router
        assert sum(map(prod, matrices_of(model, layer, tensor))) == split + whole


def test_rows_of_a_llama_layer() -> None:
    """Llama 3 8B with --tp 2: 16 of 32 query heads and 4 of 8 key-value heads of 128; half of 14,336 columns."""
    assert sorted(matrices_of(find_model("llama3-8b"), 0, 2)) == sorted(
        [(2048, 4096), (512, 4096), (512, 4096), (4096, 2048), (7168, 4096), (7168, 4096), (4096, 7168)]
        + [(4096, 1)] * 2
    )
