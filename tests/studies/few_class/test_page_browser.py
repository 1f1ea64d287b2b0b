"""The page in headless Chromium, as readers have it: on a desktop, a phone and paper, by mouse, keyboard and ear."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error, Locator, Page, sync_playwright

from fca.cli.serve import served
from fca.report.compare import FOLDER, write
from fca.report.page import AnalysesReport
from tests.studies.few_class.support.invented import COLUMNS, results, run_rows, tables

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

MODELS = tuple(f"model_{i}" for i in range(12))
EVIL = '<img src=x onerror="window.evil=1">'
PHONE, PAPER, DESKTOP = {"width": 390, "height": 844}, {"width": 718, "height": 1000}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    named = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        try:
            opened = playwright.chromium.launch(executable_path=named, args=["--no-sandbox"] * (os.geteuid() == 0))
        except Error as error:
            pytest.fail(f"no Chromium; apt-get install chromium, or .venv/bin/playwright install chromium ({error})")
        yield opened
        opened.close()


def written(folder: Path, models=MODELS, **asked) -> Path:
    made = tables(models=models, **asked)
    report = AnalysesReport("few_class", "Few classes", ["few_class", "similarity", "correlation"], {})
    return report(folder, results(made), run_rows(made), "fca report report=few_class", COLUMNS)


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("page") / "p", datasets=("digits", "letters"), ncl=(2, 3, 10))


@pytest.fixture
def opened(browser, index) -> Iterator[Page]:
    with browser.new_context(viewport=DESKTOP) as context:
        yield shown(context.new_page(), index)


def shown(page: Page, index: Path) -> Page:
    """The page with all its figures drawn, and without a complaint."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(index.as_uri())
    page.evaluate("window.figuresDrawn")
    assert not problems
    return page


def sideways(page: Page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_it_opens_with_at_most_five_answers_the_first_an_accuracy_each_with_a_figure(opened):
    answers = opened.locator(".answers li").all()
    assert 1 <= len(answers) <= 5
    assert "reaches" in answers[0].inner_text()
    assert "%" in answers[0].locator("strong").inner_text()
    assert all(answer.locator("svg.marks").count() == 1 for answer in answers)
    assert answers[0].bounding_box()["y"] < DESKTOP["height"] / 3


def test_every_figure_is_drawn_and_as_wide_as_the_page_at_most(opened):
    places = opened.locator("[data-figure]").all()
    assert len(places) >= 10
    for place in places:
        box, marks = place.bounding_box(), place.locator(".marks").bounding_box()
        assert 0.8 * box["width"] < marks["width"] <= box["width"] + 1


def test_a_choice_filters_every_figure_and_table_or_is_said_not_to(opened):
    opened.get_by_role("button", name="letters", exact=True).click()
    opened.evaluate("apply(fields)")
    place = opened.locator('[data-figure="gap"]')
    assert place.locator(".marks").bounding_box()["width"] > 0.8 * place.bounding_box()["width"]  # one panel of two
    known = opened.evaluate(
        """() => [...views].filter(([name]) => !name.startsWith("answer")).map(([name, view]) => [
          name, "only_dataset" in view.getState().signals,
          document.querySelector(`[data-figure="${name}"]`).nextElementSibling.matches(".unfiltered"),
          view.getState().signals.only_dataset])"""
    )
    for name, follows, noted, chosen in known:
        assert follows or noted, name
        assert not follows or chosen == ["letters"]
    opened.locator("details", has_text="accuracy_points").first.locator("summary").first.click()
    texts = opened.locator('[aria-label="accuracy_points"] tbody tr').all_inner_texts()
    assert texts
    assert all("letters" in text for text in texts)


def test_many_values_are_a_menu_that_a_keyboard_searches(opened):
    menu = opened.locator("#menu-model")
    assert opened.locator('#filters [data-field="model"] > button').count() == 1  # no wall of buttons
    opened.locator('[popovertarget="menu-model"]').focus()
    opened.keyboard.press("Enter")
    opened.keyboard.type("_11")
    assert menu.locator("li:visible").all_inner_texts() == ["model_11"]
    opened.keyboard.press("Tab")
    opened.keyboard.press("Space")
    opened.keyboard.press("Escape")
    assert not menu.is_visible()
    assert opened.evaluate("[...chosen.model]") == ["model_11"]
    assert opened.evaluate("views.get('accuracy').signal('only_model')") == ["model_11"]
    assert "model_11" in opened.locator('[popovertarget="menu-model"]').inner_text()


def test_hovering_shows_the_run_and_the_command_that_repeats_it(opened):
    seen = [hovered(opened, mark) for mark in opened.locator('[data-figure="accuracy"] .role-mark path').all()[:30]]
    assert any("fca run model=" in text for text in seen)  # one subset of one sub-model
    assert any("fca analyse analysis=few_class" in text for text in seen)  # a mean over subsets


def hovered(page: Page, mark: Locator) -> str:
    mark.hover(force=True)
    return page.locator("#vg-tooltip-element").inner_text()


@pytest.mark.parametrize("size", [PHONE, PAPER], ids=["phone", "paper"])
def test_nothing_lies_beside_a_narrow_page(browser, index, size):
    with browser.new_context(viewport=size) as context:
        page = shown(context.new_page(), index)
        assert sideways(page) == 0
        if size is PAPER:
            page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
            page.emulate_media(media="print")
            assert sideways(page) == 0
            assert not page.locator("#bar").is_visible()
            assert page.locator("details.words .sentences").first.is_visible()
            assert (
                page.evaluate("document.body.scrollHeight") < 40 * PAPER["height"]
            )  # wide tables once made 300 sheets
            assert page.pdf(format="A4").startswith(b"%PDF-")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_serious(browser, index, scheme, size):
    with browser.new_context(viewport=size, color_scheme=scheme) as context:
        page = shown(context.new_page(), index)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        found = Axe().run(page).response["violations"]
        serious = [
            (one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")
        ]
        assert serious == []


def test_names_of_strangers_run_nothing(browser, tmp_path):
    index = written(tmp_path / "p", models=(EVIL, "b", *MODELS), datasets=(f"set{EVIL}",), ncl=(2, 10))
    with browser.new_context(viewport=DESKTOP) as context:
        page = shown(context.new_page(), index)
        assert EVIL in hovered(page, page.locator('[data-figure="accuracy"] .mark-symbol.role-mark path').first)
        page.locator('[popovertarget="menu-model"]').click()
        assert EVIL in page.locator("#menu-model").inner_text()
        assert page.evaluate("window.evil") is None


def test_runs_are_compared_by_setting_epoch_class_and_image(browser, tmp_path):
    index = written(tmp_path / "p", models=("a", "b"), ncl=(10,))
    with browser.new_context(viewport=DESKTOP) as context:
        page = shown(context.new_page(), index)
        at = page.evaluate("data.tables.runs.columns.findIndex(({ name }) => name === 'run_id')")
        runs = page.evaluate(f"data.tables.runs.lines.slice(0, 2).map((line) => line[{at}])")
        for run, hits, wrong in zip(runs, (9, 5), ({"i1": ["cat", "dog"]}, {"i2": ["cat", EVIL]}), strict=True):
            curve = [{"epoch": epoch, "val_loss": 1 / epoch} for epoch in (1, 2)]
            found = {"fingerprint": "f", "classes": {"cat": [hits, 10]}, "wrong": wrong, "curve": curve}
            write(index.parent / FOLDER / f"{run}.js", "fcaRun", run, found)
        assert "Choose two or more" in page.locator("#comparison").inner_text()
        for run in runs:
            page.get_by_label(f"Compare run {run}").check()
        page.locator("#comparison .gallery").wait_for()
        text = page.locator("#comparison").inner_text()
        assert "2 images on which they disagree" in text
        assert f"predicted cat | {EVIL}" in text
        assert "40.0" in page.get_by_label("Accuracy by class").last.inner_text()
        assert "model" in page.get_by_label("What differs").last.inner_text()
        page.locator("#comparison .marks").wait_for()
        assert page.evaluate("window.evil") is None


def test_a_served_page_reloads_when_it_is_made_again_and_keeps_choice_and_place(browser, tmp_path):
    index = written(tmp_path / "p", models=("a", "b"), datasets=("digits", "letters"), ncl=(2, 10))
    with served(index.parent) as address, browser.new_context(viewport=DESKTOP) as context:
        page = context.new_page()
        page.goto(address)
        page.evaluate("window.figuresDrawn")
        page.get_by_role("button", name="letters", exact=True).click()
        page.evaluate("window.scrollTo(0, 900)")
        page.wait_for_timeout(2500)  # the version of the page is known
        text = index.read_text().replace("<h1>Few classes</h1>", "<h1>Made again</h1>")
        index.write_text(text)
        os.utime(index, (2e9, 2e9))
        page.get_by_role("heading", name="Made again").wait_for()
        page.evaluate("window.figuresDrawn")
        page.wait_for_function("window.scrollY === 900")
        assert page.evaluate("[...chosen.dataset]") == ["letters"]
