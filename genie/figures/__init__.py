"""Results as HTML for notebooks: tables of headline facts, and figures as inline SVG.

The HTML has no script, loads nothing, and inherits colours and font from the notebook. The functions take plain data or
tables, so that each room describes its own results.
"""

from genie.figures.bars import Bar, bars
from genie.figures.distribution import distribution
from genie.figures.figure import Figure
from genie.figures.headline import Fact, headline
from genie.figures.timeline import timeline

__all__ = ["Bar", "Fact", "Figure", "bars", "distribution", "headline", "timeline"]
