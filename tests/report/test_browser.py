"""The page in a headless Chromium: quiet, whole, dark and light, narrow, printed, by keyboard, and what axe-core finds.

The page is that of a fabricated run, or of the run whose report.html KASSAY_PAGE names (.ci/run: the smoke profile's).
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from kassay.report.style import CSS
from tests.report.fabricate import FakeRun
from tests.report.fused import ended, fusion_run
from tests.report.hostile import hostile_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ("disable-quic", "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync")
PHONE, DESKTOP, A4 = 390, 1200, 718  # CSS pixels; A4 less margins of 10 mm
FIGURES = {  # heading -> least number of drawings in its section, for a run of the small or the smoke study
    "Stages": 1,
    "Verdicts": 1,
    "Quality gates": 5,
    "Paired timing": 1,
    "Latency": 1,
    "Saturation": 6,
    "Memory": 1,
}
OPEN_ALL = "document.querySelectorAll('details').forEach(one => { one.open = true })"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT = """() => [...document.querySelectorAll('table, svg, pre, p, dl')]
  .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(one => one.outerHTML.slice(0, 90))"""
LUMINANCE = """name => { const [r, g, b] = getComputedStyle(document.body)[name].match(/\\d+/g).map(Number);
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255 }"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")


@dataclass
class Opened:
    """A page and what happened while it was opened."""

    page: Page
    said: list[str] = field(default_factory=list)  # console messages, errors, dialogs
    asked: list[str] = field(default_factory=list)  # urls


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=[f"--{word}" for word in QUIET])
        yield made
        made.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The page that is looked at."""
    if named := os.environ.get("KASSAY_PAGE"):
        return Path(named).resolve(strict=True)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(request.getfixturevalue("full_reports")["report.html"], encoding="utf-8")
    return path


def opened(browser: Browser, path: Path, width: int = DESKTOP, scheme: str = "light") -> Opened:
    """The page in a window of its own."""
    window = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "reduced_motion": "reduce"}
    made = Opened(browser.new_context(**window).new_page())  # type: ignore[arg-type]
    made.page.on("console", lambda message: made.said.append(message.text))
    made.page.on("pageerror", lambda error: made.said.append(str(error)))
    made.page.on("dialog", lambda dialog: (made.said.append(dialog.message), dialog.dismiss())[0])
    made.page.on("request", lambda asked: made.asked.append(asked.url))
    made.page.goto(path.as_uri())
    return made


def serious(page: Page) -> list[str]:
    """What axe-core finds that is serious or worse, each with its first place."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found if one["impact"] in ("serious", "critical")
    ]


def test_it_says_nothing_and_asks_for_nothing_else(browser: Browser, page_file: Path) -> None:
    made = opened(browser, page_file)
    assert made.said == [] and made.asked == [page_file.as_uri()]


def test_every_figure_is_there_with_its_size_and_its_data(browser: Browser, page_file: Path) -> None:
    page = opened(browser, page_file).page
    for heading, least in FIGURES.items():
        section = page.locator("section", has=page.get_by_role("heading", name=heading, exact=True, level=2))
        drawings = section.locator("svg").all()
        assert len(drawings) >= least or "so nothing is drawn" in section.inner_text(), heading
        for drawing in drawings:
            box = drawing.bounding_box()
            assert box is not None and box["width"] > 100 and box["height"] > 40, heading
            assert drawing.get_attribute("aria-label"), heading
        assert not drawings or section.locator("table").count() >= 1, heading


def test_sections_are_reached_by_keyboard(browser: Browser, page_file: Path) -> None:
    page = opened(browser, page_file).page
    links = page.locator("nav a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    reached: list[str] = []
    for _ in range(len(links) + 20):
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.getAttribute('href')")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", focused
        reached.append(focused)
    assert reached[0] == "#main" and [href for href in reached if href in links][-len(links) :] == links
    page.locator(f"nav a[href='{links[-1]}']").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"{links[-1]}$"))
    expect(page.locator(links[-1])).to_be_in_viewport()
    table = page.locator("details summary").first
    table.focus()
    page.keyboard.press("Enter")
    assert page.locator("details").first.evaluate("one => one.open")


def test_dark_and_light_differ_in_paper_ink_and_drawings(browser: Browser, page_file: Path) -> None:
    shown = {}
    for scheme in ("light", "dark"):
        page = opened(browser, page_file, scheme=scheme).page
        paper, ink = (page.evaluate(LUMINANCE, name) for name in ("backgroundColor", "color"))
        drawn = page.locator("svg text").first.evaluate("one => getComputedStyle(one).fill")
        shown[scheme] = (paper, ink, drawn)
    assert shown["light"][0] > 0.9 > 0.2 > shown["light"][1]
    assert shown["dark"][1] > 0.8 > 0.2 > shown["dark"][0]
    assert shown["light"][2] != shown["dark"][2]


@pytest.mark.parametrize("width", [PHONE, 320])
def test_a_narrow_page_does_not_scroll_sideways(browser: Browser, page_file: Path, width: int) -> None:
    page = opened(browser, page_file, width).page
    assert page.evaluate(OVERFLOW) == 0
    page.evaluate(OPEN_ALL)
    assert page.evaluate(OVERFLOW) == 0


@pytest.mark.parametrize(("width", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_axe_finds_nothing_serious(browser: Browser, page_file: Path, width: int, scheme: str) -> None:
    page = opened(browser, page_file, width, scheme).page
    page.evaluate(OPEN_ALL)
    assert serious(page) == []


def test_axe_would_find_it(browser: Browser, tmp_path: Path) -> None:
    spoiled = tmp_path / "spoiled.html"
    pale = re.sub("--soft: #[0-9a-f]+", "--soft: #dddddd", CSS)
    page = "<main><h1>Verdict</h1><p class='note'>pale</p><svg role='img'></svg></main>"
    spoiled.write_text(f"<!doctype html><html><title>t</title><style>{pale}</style><body>{page}", encoding="utf-8")
    found = {one.partition(":")[0] for one in serious(opened(browser, spoiled).page)}
    assert found == {"html-has-lang", "color-contrast", "svg-img-alt"}


def test_paper_shows_every_table_and_cuts_none(browser: Browser, page_file: Path) -> None:
    page = opened(browser, page_file, A4).page
    page.emulate_media(media="print")
    assert page.evaluate(CUT) == []
    hidden = page.locator("details table").evaluate_all("all => all.filter(one => !one.checkVisibility()).length")
    assert hidden == 0


@pytest.mark.parametrize(("width", "tallest"), [(DESKTOP, 160), (PHONE, 400)])
def test_what_stands_below_a_verdict_is_in_sight_and_makes_no_tall_row(
    browser: Browser, tmp_path: Path, width: int, tallest: int
) -> None:
    path = tmp_path / "fused.html"
    path.write_text(ended(fusion_run(tmp_path)).rendered()["report.html"], encoding="utf-8")
    page = opened(browser, path, width).page
    rows = page.locator("section[aria-labelledby=fusion] tbody tr")
    assert rows.count() == 7
    for row in rows.all():
        told, whole = row.locator("td.free").bounding_box(), row.bounding_box()
        assert told is not None and whole is not None and whole["height"] < tallest
        assert told["x"] + told["width"] <= width


def test_hostile_text_does_nothing_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    run: FakeRun = hostile_run(tmp_path)
    path = tmp_path / "report.html"
    path.write_text(run.rendered()["report.html"], encoding="utf-8")
    made = opened(browser, path, PHONE)
    made.page.evaluate(OPEN_ALL)
    assert made.said == [] and made.asked == [path.as_uri()]
    assert made.page.evaluate(OVERFLOW) == 0
    assert made.page.locator("script, img, b:text-is('x'), a[href^='javascript']").count() == 0
    assert made.page.evaluate("document.body.innerText").count("<script>alert('x')</script>") > 20
