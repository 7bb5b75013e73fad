"""XML as a tree whose elements have line numbers; without document types, entities and text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from genie.inputs.content import ContentError, read_bytes
from simtwin.imports.words import ForeignFileError, Value, shown

DEPTH_MAX = 64


@dataclass
class Element:
    path: Path
    line: int
    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)

    def value(self, attribute: str, default: str = "") -> Value:
        """Return an attribute as a value, with the name for errors."""
        return Value(self.path, self.line, f"{self.name} {attribute} =", self.attributes.get(attribute, default))

    def error(self, what: str) -> ForeignFileError:
        return ForeignFileError(f"{self.path}:{self.line}: <{self.name}> {what}")

    def note(self, what: str) -> str:
        """Return a warning with the element's place in the file."""
        return f"{self.path}:{self.line}: <{shown(self.name)}>: {shown(what, 200)}"

    def walk(self) -> Iterator[Element]:
        """Yield this element and all below it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()


def read_xml(path: Path) -> Element:
    """Return the root element. Raises ForeignFileError."""
    try:
        text = read_bytes(path)
    except ContentError as wrong:
        raise ForeignFileError(f"{path}: {wrong}") from wrong
    except OSError as wrong:
        raise ForeignFileError(f"{path}: cannot be read: {wrong.strerror}; give an XML file") from wrong
    parser = expat.ParserCreate()
    top = Element(path, 0, "", {})
    stack = [top]

    def start(name: str, attributes: dict[str, str]) -> None:
        element = Element(path, parser.CurrentLineNumber, name, attributes)
        if len(stack) > DEPTH_MAX:
            raise element.error(f"is nested deeper than {DEPTH_MAX} elements: give a flatter file")
        stack[-1].children.append(element)
        stack.append(element)

    def end(_: str) -> None:
        stack.pop()

    def document_type(*_: object) -> None:
        raise ForeignFileError(f"{path}:{parser.CurrentLineNumber}: has a document type: leave it out")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = document_type
    try:
        parser.Parse(text, True)
    except expat.ExpatError as wrong:
        raise ForeignFileError(f"{path}:{wrong.lineno}: is not XML: {expat.ErrorString(wrong.code)}") from wrong
    except (LookupError, ValueError) as wrong:
        raise ForeignFileError(f"{path}: has an encoding that is not read: {wrong}; give it in UTF-8") from wrong
    return top.children[0]
