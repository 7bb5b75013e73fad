"""One page a JSON Schema, from the schemas that `genie schema` prints."""

from __future__ import annotations

import json
from typing import Any

from genie.report.json_outputs import OUTPUTS, json_schema

FOLDER = "schemas"


def pages() -> dict[str, str]:
    """Return place -> text of the pages of schemas, and of the schemas as files."""
    made = {}
    for name in OUTPUTS:
        schema = json_schema(name)
        made[f"{FOLDER}/{name}.md"] = page_of(name, schema)
        made[f"{FOLDER}/{name}.schema.json"] = json.dumps(schema, indent=2) + "\n"
    return made


def words_of(name: str) -> str:
    """Return one line about an output."""
    return (OUTPUTS[name].__doc__ or name).splitlines()[0]


def page_of(name: str, schema: dict[str, Any]) -> str:
    """Return the page of a schema: a table of keys for each of its objects."""
    top = schema["$ref"].rpartition("/")[2] if "$ref" in schema else ""
    parts = [f"# Schema {name}", words_of(name)]
    parts.append(f"`genie schema {name}` prints the schema. File: [{name}.schema.json]({name}.schema.json).")
    if not top:
        parts.append(f"The value is {kind_of({key: schema[key] for key in schema if key not in ('$defs', 'title')})}.")
    definitions = schema.get("$defs", {})
    for each in sorted(definitions, key=lambda each: each != top):
        parts += definition(each, definitions[each], is_top=each == top)
    return "\n\n".join(parts) + "\n"


def definition(name: str, schema: dict[str, Any], *, is_top: bool) -> list[str]:
    """Return the section of one object."""
    parts = [f"## {name}"]
    if not is_top and schema.get("description"):
        parts.append(schema["description"])
    if "properties" not in schema:
        return [*parts, f"The value is {kind_of(schema)}."]
    required = set(schema.get("required", ()))
    rows = [
        f"| `{key}` | {kind_of(value)}{'' if key in required else ', optional'} |"
        for key, value in schema["properties"].items()
    ]
    return [*parts, "\n".join(["| key | value |", "|---|---|", *rows])]


def kind_of(schema: dict[str, Any]) -> str:
    """Return the kind of a value in words, with links to the objects of the page."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(kind_of(choice) for choice in choices)
    match schema.get("type"):
        case "array":
            if "prefixItems" in schema:
                return f"list ({'; '.join(kind_of(item) for item in schema['prefixItems'])})"
            return f"list of {kind_of(schema['items'])}" if schema.get("items") else "list"
        case "object":
            inner = schema.get("additionalProperties")
            return f"object of {kind_of(inner)}" if isinstance(inner, dict) and inner else "object"
        case list() as kinds:
            return " or ".join(kinds)
        case str() as kind:
            return kind
    return "any"
