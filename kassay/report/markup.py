"""HTML and SVG elements as values: whatever is not Markup is cleaned and escaped, without being asked."""

import html
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from kassay.report.words import clean

VOID = {"meta", "link", "br", "rect", "path", "line", "circle"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | int | float | None | Iterable["Content"]


def escaped(content: Content) -> Markup:
    """Content as HTML: Markup as it is, None as nothing, lists joined, anything else cleaned and escaped."""
    if content is None:
        return Markup("")
    if isinstance(content, Markup):
        return content
    if isinstance(content, str | int | float):
        return Markup(html.escape(clean(content), quote=True))
    return Markup("".join(escaped(item) for item in content))


def tag(name: str, /, *children: Content, **attributes: object) -> Markup:
    """An element; `class_` is `class`, `aria_label` is `aria-label`, an attribute of None is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(clean(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID and not children:
        return Markup(f"<{name}{given}/>" if name in ("rect", "path", "line", "circle") else f"<{name}{given}>")
    return Markup(f"<{name}{given}>{escaped(children)}</{name}>")


def prose(text: str) -> list[Content]:
    """A sentence of ours or of a record; what stands in backticks is code."""
    return [tag("code", part) if index % 2 else part for index, part in enumerate(text.split("`"))]


def link(path: str, text: Content) -> Markup:
    """A link to a file beside the report; nothing in a name can make it leave the folder's scheme."""
    return tag("a", text, href=quote(path))


def cell(content: Content, *, kind: str = "") -> Markup:
    """One table cell; `kind` is a class such as `n` for numbers."""
    return tag("td", content, class_=kind or None)


def numbers(*contents: Content) -> list[Markup]:
    """Cells of numbers, aligned right."""
    return [cell(content, kind="n") for content in contents]


def table(
    caption: str, header: Sequence[str], rows: Iterable[Content], *, right: Iterable[int] = (), kind: str = ""
) -> Markup:
    """A table in a box that scrolls by itself; `rows` are ready-made cells, `right` the columns of numbers."""
    aligned = set(right)
    heads = [
        tag("th", text, scope="col", class_="n" if index in aligned else None) for index, text in enumerate(header)
    ]
    body = [row if isinstance(row, Markup) and row.startswith("<tr") else tag("tr", row) for row in rows]
    made = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", tag("tr", heads)),
        tag("tbody", body),
        class_=kind or None,
    )
    return tag("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def section(anchor: str, heading: str, *children: Content) -> Markup:
    """A section with its heading; `anchor` is its id."""
    return tag("section", tag("h2", heading, id=anchor), children, aria_labelledby=anchor)


def definitions(pairs: Iterable[tuple[Content, Content]], *, kind: str = "") -> Markup:
    """A definition list."""
    return tag("dl", [[tag("dt", term), tag("dd", text)] for term, text in pairs], class_=kind or None)
