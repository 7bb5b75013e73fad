"""Mutations of files: of their structure (trees, tokens, tables, traces), and of their bytes. All from one seed."""

from __future__ import annotations

import copy
import json
import math
from random import Random
from typing import Any
from xml.etree import ElementTree

NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 255, 1 << 16, 10**6, 10**8, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, 1 << 53, (1 << 62),
    (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 31), -(1 << 63), 10**30, 10**400, 0.5, -0.0, 1e-9, 5e-324,
    1e15, 1e308, -1e308, math.nan, math.inf, -math.inf, True, False,
)  # fmt: skip
STRINGS = (
    "", " ", "0", "-1", "nan", "inf", "1e999", "9" * 30, "9" * 5000, "a\nb", "a\rb", "\x1b[31mred\x1b[0m", "\x00",
    "\x7f\x9b", "\ud800", "\u202eabc", "é", "=1+1", "-oProxyCommand=x", "a,b", "a:b", "../../x", "/dev/null",
    "unlimited", "1 TiB", "1e3Gb/s", "none", "null", "{rank+99999}", "x" * 300, "x" * 70_000, "0-65535", "10.0.0.300",
    "🙂", "\u2028",
)  # fmt: skip
SCALARS: tuple[Any, ...] = (*NUMBERS, *STRINGS, None, [], {}, [[]], [None], {"": None}, [0] * 40)


def weird(rng: Random, old: Any = None) -> Any:
    """A value that a reader may not expect, often of the type that it does expect."""
    if isinstance(old, bool) or old is None or rng.random() < 0.3:
        return copy.deepcopy(rng.choice(SCALARS))
    if isinstance(old, int) and rng.random() < 0.4:
        near = float(old) if abs(old) < 10**300 else old
        return rng.choice((old + 1, old - 1, -old, old * 2, old * 1000, old * 10**9, old // 2, near, str(old)))
    if isinstance(old, int | float):
        return rng.choice(NUMBERS)
    if isinstance(old, str):
        return rng.choice(STRINGS) if rng.random() < 0.6 else mutated_word(rng, old)
    return copy.deepcopy(rng.choice(SCALARS))


def mutated_word(rng: Random, word: str) -> str:
    """A word with a letter more, less, or another."""
    at = rng.randrange(len(word) + 1)
    letter = rng.choice(("9", "-", ".", "e", " ", "\n", "\x1b", ",", ":", "x", "é", "0"))
    return word[:at] + rng.choice((letter, letter * 30, "")) + word[at + rng.randrange(2) :]


def deep(rng: Random) -> Any:
    """A nest of lists or objects."""
    nest: Any = rng.choice((0, "x", []))
    key = rng.choice((None, "a", "args"))
    for _ in range(rng.choice((5, 60, 150))):
        nest = [nest] if key is None else {key: nest}
    return nest


def _places(tree: Any, limit: int = 4000) -> list[tuple[Any, Any]]:
    """(container, key) of all values of a tree."""
    found, left = [], [tree]
    while left and len(found) < limit:
        node = left.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            found.append((node, key))
            if isinstance(value, dict | list):
                left.append(value)
    return found


def mutate_tree(rng: Random, tree: Any) -> Any:
    """Objects, lists and scalars, changed in one to three places."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = _places(tree)
        if not places:
            return weird(rng)
        container, key = rng.choice(places)
        try:
            value = container[key]
        except (KeyError, IndexError):
            continue
        match rng.randrange(10):
            case 0 | 1 | 2 | 3:
                container[key] = weird(rng, value)
            case 4:
                container.pop(key)
            case 5:
                other, at = rng.choice(places)
                container[key] = copy.deepcopy(other[at]) if at in other or isinstance(other, list) else None
            case 6:
                container[key] = deep(rng)
            case 7 if isinstance(value, list) and value:
                container[key] = value * rng.choice((2, 3, 50)) if rng.random() < 0.5 else list(reversed(value))
            case 7 if isinstance(container, list):
                container.insert(rng.randrange(len(container) + 1), copy.deepcopy(value))
            case 8 if isinstance(container, dict):
                container[rng.choice((*STRINGS, str(key) + "x"))] = container.pop(key) if rng.random() < 0.5 else 1
            case _:
                container[key] = weird(rng, value)
    return tree


def mutate_bytes(rng: Random, data: bytes) -> bytes:
    """Bits, pieces and ends changed."""
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        size = len(content)
        at = rng.randrange(size + 1)
        match rng.randrange(7):
            case 0 if size:
                content[at % size] ^= 1 << rng.randrange(8)
            case 1:
                del content[at:]
            case 2:
                del content[at : at + rng.randrange(1, 40)]
            case 3:
                start = rng.randrange(size + 1)
                content[at:at] = content[start : start + rng.randrange(1, 200)]
            case 4:
                content[at:at] = rng.choice(
                    (b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[2J", b"\n", b"[" * 5000, b"9" * 5000)
                )
            case 5 if size:
                content[at % size] = rng.randrange(256)
            case _:
                content[at:at] = rng.randbytes(rng.randrange(1, 30))
    return bytes(content)


def mutate_words(rng: Random, text: str) -> str:
    """A text of lines and words."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(max(len(lines), 1))
        match rng.randrange(8):
            case 0 if lines:
                del lines[at]
            case 1 if lines:
                lines.insert(at, rng.choice(lines))
            case 2 if len(lines) > 1:
                other = rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case _ if lines:
                separator = "," if lines[at].count(",") > 2 else " "
                words = lines[at].split(separator)
                word = rng.randrange(len(words))
                choice = rng.randrange(5)
                if choice == 0:
                    del words[word]
                elif choice == 1:
                    words.insert(word, words[word])
                else:
                    words[word] = (
                        str(rng.choice(NUMBERS[:30])) if rng.random() < 0.5 else str(weird(rng, words[word]))[:80_000]
                    )
                lines[at] = separator.join(words)
            case _:
                lines = [str(weird(rng, ""))]
    return "\n".join(lines) + "\n"


def nested(rng: Random, data: bytes) -> bytes:
    """A value's place filled with brackets, deeper than any stack."""
    at = data.find(rng.choice((b":", b"=", b",")), rng.randrange(len(data) + 1)) + 1
    depth = rng.choice((900, 5_000, 200_000))
    return data[:at] + b"[" * depth + b"]" * depth + data[at:]


def json_of(rng: Random, tree: Any) -> bytes:
    """JSON, sometimes with a key twice or with raw surrogates."""
    try:
        text = json.dumps(tree, ensure_ascii=rng.random() < 0.8)
    except (RecursionError, ValueError):
        return b"[" * 100_000
    if rng.random() < 0.05 and '": ' in text:
        at = text.index('"')
        text = text[:at] + '"id": [], "rank": {}, "ts": "x", ' + text[at:]
    return text.encode("utf-8", "surrogatepass")


def toml_of(tree: Any) -> bytes:
    """TOML: a table a line, tables inside it inline."""
    lines: list[str] = []
    plain = {key: value for key, value in tree.items() if not _is_tables(value)} if isinstance(tree, dict) else {}
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items() if value is not None]
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if _is_tables(value):
            for table in value if isinstance(value, list) else [value]:
                lines.append(f"[[{_key(key)}]]" if isinstance(value, list) else f"[{_key(key)}]")
                lines += [f"{_key(name)} = {_value(one)}" for name, one in table.items() if one is not None]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


def _is_tables(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and all(isinstance(i, dict) for i in value)
    )


def _key(key: Any) -> str:
    text = str(key)
    return text if text and text.isascii() and text.replace("_", "").isalnum() else json.dumps(text)


def _value(value: Any, depth: int = 0) -> str:
    if depth > 300:
        return "[" * 2000 + "]" * 2000
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v, depth + 1)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item, depth + 1) for item in value if item is not None) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=True) if "\ud800" not in value else '"\\uD800"'
    return repr(value) if not isinstance(value, int) or abs(value) < 10**300 else "9" * 400


def mutate_xml(rng: Random, text: str) -> str:
    """Attributes, elements and their order."""
    root = ElementTree.fromstring(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        elements = list(root.iter())
        element = rng.choice(elements)
        match rng.randrange(8):
            case 0 | 1 | 2 | 3 if element.attrib:
                name = rng.choice(list(element.attrib))
                if rng.random() < 0.15:
                    del element.attrib[name]
                else:
                    element.attrib[name] = _xml_text(
                        str(rng.choice(NUMBERS[:31]) if rng.random() < 0.5 else weird(rng, name))
                    )
            case 4 if len(element):
                element.remove(rng.choice(list(element)))
            case 5:
                element.append(copy.deepcopy(rng.choice(elements)))
            case 6:
                element.tag = rng.choice(("x", "gpu", "tb", "step", "nic", "pci", "net", "system"))
            case _:
                nest = element
                for _ in range(rng.choice((3, 70, 500))):
                    nest = ElementTree.SubElement(nest, rng.choice(("pci", "gpu", "x")))
    text = ElementTree.tostring(root, encoding="unicode")
    if rng.random() < 0.03:
        text = '<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;&b;&b;">]>' + text
    return text


def _xml_text(text: str) -> str:
    return "".join(c for c in text if c >= " " and not "\ud800" <= c <= "\udfff")[:20_000]
