"""Pages in a browser as tests open them, and the contrast of their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Opened = Callable[..., Any]

# [text, contrast] of each shown text whose contrast with the ground behind it is below `least`. Texts in drawings
# stand on the shape at their middle.
LOW_CONTRAST = """least => {
  const pixel = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const colour = text => {
    pixel.clearRect(0, 0, 1, 1); pixel.fillStyle = text; pixel.fillRect(0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data];
  };
  const bright = rgb => {
    const [r, g, b] = rgb.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = colour(getComputedStyle(document.body).backgroundColor);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const own = colour(getComputedStyle(at).backgroundColor);
      if (own[3] > 250) return own;
    }
    return page;
  };
  const inDrawing = text => {
    text.scrollIntoView({ block: 'center', inline: 'center' });
    const box = text.getBoundingClientRect();
    for (const it of document.elementsFromPoint(box.left + box.width / 2, box.top + box.height / 2))
      if (it.tagName === 'rect' && !it.closest('.link, .slice')) {
        const own = colour(getComputedStyle(it).fill);
        if (own[3] > 250) return own;
      }
    return page;
  };
  const isShown = it => it.getClientRects().length && getComputedStyle(it).visibility === 'visible';
  const found = [];
  for (const it of document.querySelectorAll('body *')) {
    const isDrawn = it.tagName === 'text';
    const own = [...it.childNodes].filter(child => child.nodeType === 3).map(child => child.data.trim()).join(' ');
    if (!own.trim() || it.closest('script, style, select, .faint') || !isShown(it)) continue;
    const style = getComputedStyle(it);
    const [one, other] = [colour(isDrawn ? style.fill : style.color), isDrawn ? inDrawing(it) : behind(it)]
      .map(rgb => bright(rgb.slice(0, 3)));
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < least) found.push([own.slice(0, 40), Math.round(100 * contrast) / 100]);
  }
  return found;
}"""


# Of the element with the focus: its role, its name (or the words of its value), and the id of its figure, if any.
FOCUSED = """() => {
  const it = document.activeElement;
  const name = it.getAttribute('aria-valuetext') ?? it.getAttribute('aria-label') ?? it.textContent;
  return [it.getAttribute('role') ?? it.tagName, name, it.closest('figure')?.id ?? ''];
}"""


def press(page: Any, *keys: str) -> list[str]:
    """Press keys, and return the role and the name of what has the focus then."""
    for key in keys:
        page.keyboard.press(key)
    focused: list[str] = page.evaluate(FOCUSED)[:2]
    return focused


def stops_by_figure(page: Any) -> dict[str, list[str]]:
    """Press Tab through the whole page: figure -> roles of the stops in it."""
    found: dict[str, list[str]] = {}
    for _ in range(400):
        page.keyboard.press("Tab")
        role, _, figure = page.evaluate(FOCUSED)
        if role == "BODY":
            return found
        if figure:
            found.setdefault(figure, []).append(role)
    raise AssertionError("Tab does not leave the page")


def tip_in_one_line(page: Any) -> str:
    text: str = page.inner_text("#tip")
    return text.replace("\n", "; ")


def is_ringed(page: Any, figure: str) -> bool:
    """Whether the one ring of a figure is seen just around what has the focus."""
    ring = page.locator(f"#{figure} .ring")
    assert ring.count() == 1
    assert ring.evaluate("it => getComputedStyle(it).stroke === getComputedStyle(document.body).color")
    around, mark = ring.bounding_box(), page.evaluate("(({x, y, width, height}) => ({x, y, width, height}))"
                                                      "(document.activeElement.getBoundingClientRect())")  # fmt: skip
    return bool(
        around["x"] <= mark["x"] + 1
        and around["y"] <= mark["y"] + 1
        and mark["width"] <= around["width"] <= mark["width"] + 8
        and mark["height"] <= around["height"] <= mark["height"] + 8
    )


def address(page: Any) -> str:
    """The view in the address of a page, from its # on; "" without one. (Playwright's own URL comes late.)"""
    text: str = page.evaluate("decodeURIComponent(location.hash)")
    return text


@contextmanager
def opening(browser: Any) -> Iterator[Opened]:
    """A function that opens a page; nothing is asked for beside it, and nothing goes wrong in it."""
    tabs: list[tuple[Any, list[str], list[str], str]] = []

    def opened(path: Path, address: str = "", width: int = 1280, scheme: str = "light", **more: Any) -> Any:
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
        requests: list[str] = []
        errors: list[str] = []
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda message: errors.append(message.text))
        tab.goto(path.as_uri() + address)
        tabs.append((tab, requests, errors, path.as_uri()))
        return tab

    yield opened
    for tab, requests, errors, uri in tabs:
        assert errors == []
        assert {it.partition("#")[0] for it in requests} == {uri}
        tab.close()
