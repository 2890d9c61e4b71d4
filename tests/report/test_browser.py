"""The report's page in Chromium, as a reader meets it: phone and desktop, light and dark, sorting, no complaint on the
console. Long form of the tests. Pictures are left in $EVENKEEL_SCREENSHOTS. SPDX-License-Identifier: MIT"""

import os
import pathlib

import pytest
from chromium import Browser, find

SIZES = {"phone": (390, 844), "desktop": (1280, 900)}
pytestmark = pytest.mark.skipif(find() is None, reason="no Chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(find(), tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def page(browser, full):
    """The full page on a desktop. Whatever a test does, the console must stay silent."""
    browser.complaints.clear()
    browser.show(full / "index.html", *SIZES["desktop"], "light")
    yield browser
    assert browser.complaints == []


def rgb(colour):
    return "rgb({}, {}, {})".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))


def keep(browser, name):
    if folder := os.environ.get("EVENKEEL_SCREENSHOTS"):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        browser.picture(pathlib.Path(folder) / f"{name}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("which", ["full", "bare"])
def test_it_shows_at_this_width_and_in_these_colours(browser, request, which, size, scheme):
    from report import theme

    browser.complaints.clear()
    folder, palette = request.getfixturevalue(which), {"light": theme.LIGHT, "dark": theme.DARK}[scheme]
    browser.show(folder / "index.html", *SIZES[size], scheme, phone=size == "phone")
    assert browser.run("innerWidth") == SIZES[size][0]
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == rgb(palette["back"])
    if which == "full":
        line = "[...document.querySelectorAll('#figure-share-gpu svg path')].map(p => getComputedStyle(p).stroke)"
        assert rgb(palette["ours"]) in browser.run(line)
        wide = "[...document.querySelectorAll('.panel svg')].filter(s => s.checkVisibility()).map(s => s.clientWidth)"
        assert min(browser.run(wide)) > 300
    keep(browser, f"{which}-{size}-{scheme}")
    assert browser.complaints == []


def test_tables_scroll_inside_their_box_on_a_phone(page, full):
    page.show(full / "index.html", *SIZES["phone"], "light", phone=True)
    box = "document.getElementById('results-gpu').parentNode"
    assert page.run(f"{box}.scrollWidth > {box}.clientWidth")
    assert page.run(f"{box}.getBoundingClientRect().right <= innerWidth")


COLUMN = """(() => [...document.querySelectorAll('#results-gpu tbody tr')].map(r => r.cells[6].dataset.v ?? null))()"""
HEAD = "#results-gpu th:nth-child(7)"
STATE = f"document.querySelector('{HEAD}').getAttribute('aria-sort')"


def numbers(page):
    return [None if value is None else float(value) for value in page.run(COLUMN)]


def test_a_click_sorts_and_a_second_one_turns_the_order(page):
    before = numbers(page)
    known = [value for value in before if value is not None]
    missing = [None] * (len(before) - len(known))
    assert missing and known != sorted(known)
    page.click(f"{HEAD} button")
    assert numbers(page) == sorted(known) + missing
    assert page.run(STATE) == "ascending"
    page.click(f"{HEAD} button")
    assert numbers(page) == sorted(known, reverse=True) + missing
    assert page.run(STATE) == "descending"


def test_numbers_sort_as_numbers(page):
    """256 comes before 1024, which words would turn round."""
    page.click("#results-gpu th:nth-child(6) button")
    columns = page.run(
        "[...document.querySelectorAll('#results-gpu tbody tr')].map(r => Number(r.cells[5].textContent))"
    )
    assert columns == sorted(columns) and {256, 1024} < set(columns)


def test_the_keyboard_sorts_too(page):
    known = sorted(value for value in numbers(page) if value is not None)
    page.run(f"document.querySelector('{HEAD} button').focus()")
    page.press("Enter", 13, "\r")
    assert numbers(page)[: len(known)] == known
    page.press(" ", 32, " ")
    assert numbers(page)[: len(known)] == known[::-1]


def test_words_sort_as_words_and_one_column_leads_at_a_time(page):
    page.click(f"{HEAD} button")
    page.click("#results-gpu th:nth-child(4) button")
    dtypes = page.run("[...document.querySelectorAll('#results-gpu tbody tr')].map(r => r.cells[3].textContent)")
    assert dtypes == sorted(dtypes) and len(set(dtypes)) > 1
    assert page.run(STATE) == "none"


def test_a_word_narrows_a_table(page):
    page.run("document.querySelector('input[data-for=results-gpu]').focus()")
    for letter in "liger bf16":
        page.press(letter, ord(letter.upper()), letter)
    shown = "[...document.querySelectorAll('#results-gpu tbody tr')].filter(r => !r.hidden)"
    rows = page.run(f"{shown}.map(r => r.cells[0].textContent + r.cells[3].textContent)")
    assert rows and set(rows) == {"Ligerbf16"}
    assert (
        page.run("document.querySelector('input[data-for=results-gpu]').parentNode.innerText").find(f"{len(rows)} rows")
        >= 0
    )


def test_the_button_changes_colours_and_they_are_remembered(page, full):
    from report import theme

    colours = []
    for _ in range(3):
        page.click("#theme")
        colours.append((page.run("document.getElementById('theme').textContent"),
                        page.run("getComputedStyle(document.body).backgroundColor")))  # fmt: skip
    light, dark = rgb(theme.LIGHT["back"]), rgb(theme.DARK["back"])
    assert colours == [("light", light), ("dark", dark), ("auto", light)]
    page.click("#theme")
    page.click("#theme")
    page.show(full / "index.html", *SIZES["desktop"], "light")
    assert page.run("getComputedStyle(document.body).backgroundColor") == dark
    page.click("#theme")


def test_links_of_the_contents_scroll_to_their_section(page):
    page.run("document.documentElement.style.scrollBehavior = 'auto'")
    page.click("nav a[href='#memory']")
    assert page.run("location.hash") == "#memory"
    assert abs(page.run("document.getElementById('memory').getBoundingClientRect().top")) < 5


def test_on_paper_the_tables_are_whole_and_the_ground_is_light(page):
    from report import theme

    page.ask("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.run("getComputedStyle(document.body).backgroundColor") == rgb(theme.LIGHT["back"])
    assert page.run("getComputedStyle(document.querySelector('.box')).maxHeight") == "none"
    assert page.run("getComputedStyle(document.getElementById('theme')).display") == "none"
