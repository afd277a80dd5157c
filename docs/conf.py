"""The documentation site: `make docs` builds it from these very pages, strictly, into build/docs/html."""

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from kassay import __version__

project = "kassay"
author = "the authors of kassay"
release = version = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 4  # links of the pages name headings as GitHub does
exclude_patterns = ["findings/*.json"]
html_theme = "furo"
html_title = f"kassay {__version__}"
html_copy_source = False
html_show_sphinx = False
nitpicky = True
# Lexers know no `$ make` transcript and no Kconfig: such a block is shown as it is.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]
LINK = re.compile(r"\[([^\]]+)\]\((\.\.?/[^)#\s]+)\)")


def without_sources(app: Any, page: str, source: list[str]) -> None:
    """A link to a file of the clone that is no page of the site becomes that file's name."""
    folder = (HERE / page).parent

    def named(match: re.Match[str]) -> str:
        path = (folder / match[2]).resolve()
        return match[0] if path.is_relative_to(HERE) else f"{match[1]} (`{path.relative_to(HERE.parent)}`)"

    source[0] = LINK.sub(named, source[0])


def setup(app: Any) -> None:
    """What Sphinx calls."""
    app.connect("source-read", without_sources)
