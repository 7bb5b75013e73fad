"""Models that Genie ships, by name: keys of `config.json` with their sources, in models.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from genie.errors import UsageError
from genie.generate.huggingface import model_of, read_config
from genie.generate.model import Model


@cache
def shipped() -> dict[str, dict[str, Any]]:
    """Return name -> keys of `config.json`, with `source`, `parameters` and `parameters_source` beside them."""
    text = (resources.files("genie.generate") / "models.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def find_model(name: str) -> Model:
    """Return the model of a file, a folder with `config.json`, or a shipped name. Raises UsageError."""
    if name in shipped():
        return model_of(shipped()[name], name, name)
    path = Path(name)
    if path.is_dir():
        path /= "config.json"
    if path.exists():
        return read_config(path)
    raise UsageError(f"{name}: is no file and no model by name: give a config.json, or one of {', '.join(shipped())}")
