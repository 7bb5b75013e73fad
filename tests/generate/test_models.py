"""Models: parameter counts against the publishers' digits, and configurations that cannot be."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from genie.errors import UsageError
from genie.generate.huggingface import FAMILIES, model_of, read_config
from genie.generate.parameters import parameters_of
from genie.generate.shipped import find_model, shipped

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_model_has_its_publisher_s_parameters(name: str) -> None:
    published = shipped()[name]["parameters"]
    counted = parameters_of(find_model(name)).main
    if isinstance(published, int):
        assert counted == published
    else:
        digits = len(f"{published:.15g}".rstrip("0"))  # those that the publisher gives
        assert float(f"{counted:.{digits}g}") == published
    assert shipped()[name]["source"]
    assert shipped()[name]["parameters_source"]


def test_the_layer_that_predicts_one_more_token_has_its_own_count() -> None:
    # h = 7168: a projection of 2 h x h, three norms, and a layer of the main model (DeepSeek-V3, section 2.2).
    found = parameters_of(find_model("deepseek-v3"))
    assert found.prediction == 11_610_068_224
    assert found.total == found.main + found.prediction


def test_parts_of_gpt_oss_are_those_of_its_model_card() -> None:
    """Table 1 of arXiv 2508.10925, in billions: 114.71 in experts and routers, 0.96 in attention, 1.16 in tables."""
    found = parameters_of(find_model("gpt-oss-120b"))
    experts = sum(layer.router + layer.experts * (layer.expert + layer.expert_whole) for layer in found.layers)
    attention = sum(layer.attention + layer.attention_whole for layer in found.layers)
    assert [round(count / 1e9, 2) for count in (experts, attention, found.embedding + found.head)] == [
        114.71, 0.96, 1.16,
    ]  # fmt: skip


def test_a_config_file_is_read_from_a_file_and_from_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    assert parameters_of(read_config(path)).total == 8_030_261_248
    assert find_model(str(tmp_path)) == find_model(str(path))
    assert find_model(str(path)).name == tmp_path.name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "bert"}, "model_type 'bert' is not supported: one of deepseek_v2"),
        ({"model_type": None}, "has no model_type"),
        ({"hidden_size": None}, "has no hidden_size, which a model of type llama needs"),
        ({"hidden_size": "big"}, "hidden_size is 'big': give an integer from 1"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"num_key_value_heads": 5}, "num_attention_heads 32 is not a multiple of num_key_value_heads 5"),
        ({"hidden_size": 4097}, "hidden_size 4097 is not a multiple of num_attention_heads 32"),
        ({"tie_word_embeddings": 3}, "tie_word_embeddings is 3: give true or false"),
    ],
)
def test_a_config_that_cannot_be_is_refused_in_one_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=r"^here: ") as wrong:
        model_of({**LLAMA, **change}, "mine", "here")
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"config\.json"):
        read_config(path)


def test_an_unknown_name_is_refused_with_the_list() -> None:
    with pytest.raises(UsageError, match=r"llama9: is no file and no model by name: .*llama3-8b"):
        find_model("llama9")
    assert {shipped()[name]["model_type"] for name in shipped()} <= set(FAMILIES)


def rows_of_models() -> list[str]:
    """The lines of the page's table."""
    rows = ["| model | type | layers | hidden | parameters | configuration |", "|---|---|---|---|---|---|"]
    for name, keys in shipped().items():
        model, published = find_model(name), keys["parameters"]
        counted = f"{parameters_of(model).main:,}"
        number = counted if isinstance(published, int) else f"{counted} (published: {published / 1e9:g} billion)"
        cells = (f"`{name}`", model.family, model.layers, f"{model.hidden:,}", number, _short(keys["source"]))
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def _short(source: str) -> str:
    return re.split(r" \(|, table", source.removeprefix("https://").removeprefix("huggingface.co/"))[0]


def sources_of_models() -> list[str]:
    """The lines of the page with the sources of the numbers, which many models share."""
    by_source: dict[str, list[str]] = {}
    for name, keys in shipped().items():
        by_source.setdefault(keys["parameters_source"], []).append(f"`{name}`")
    lines = []
    for source, names in by_source.items():
        lines += textwrap.wrap(f"- {', '.join(names)}: {source}.", 100, subsequent_indent="  ")
    return lines


def test_the_page_has_all_models_with_their_sources() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text()
    for lines in (rows_of_models(), sources_of_models()):
        assert "\n".join(lines) in page, "\n".join(lines)
