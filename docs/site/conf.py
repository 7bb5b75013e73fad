"""Configuration of Sphinx. build.py writes the tree of pages, and starts Sphinx with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

SITE = Path(__file__).resolve().parent
ROOT = SITE.parent.parent
sys.path.insert(0, str(SITE))

import site_api  # noqa: E402
import site_commands  # noqa: E402
from docutils import nodes  # type: ignore[import-untyped]  # noqa: E402

from genie import __version__  # noqa: E402

project, author = "Genie", "the authors of Genie"
project_copyright = f"{author}. License: Apache-2.0"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "pydata_sphinx_theme"
html_title = f"Genie {release}"
html_static_path, templates_path = ["static"], ["templates"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source, html_show_sourcelink = True, False
html_theme_options = {
    "logo": {"text": "Genie"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_depth": 3,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
html_sidebars: dict[str, list[str]] = {"index": [], "gallery": [], "try-it": []}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
man_pages = list(site_commands.man_pages())
man_show_urls = False
default_role, smartquotes = "code", False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
python_maximum_signature_line_length = 60
python_use_unqualified_type_names = True
suppress_warnings = ["misc.highlighting_failure"]


def without_addresses(app: Any, tree: nodes.document, _page: str) -> None:
    """Replace links between man pages by their words: the writer prints the addresses of links."""
    if app.builder.name == "man":
        for link in list(tree.findall(nodes.reference)):
            if not link.get("refuri", "").startswith("http"):
                link.replace_self(link.children)


def setup(app: Any) -> None:
    """Register the hooks."""
    app.connect("autodoc-process-docstring", site_api.as_fields)
    app.connect("doctree-resolved", without_addresses)
