"""The catalogue as people meet it: in a real browser, on a phone, by keyboard, in the dark."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from my_datasets.catalog.pages import diff_page, statistics_page, verification_page
from my_datasets.catalog.releases import VersionComparer, collect
from my_datasets.catalog.site import write
from my_datasets.comparison.diff import diff
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.verification.verifier import Level, verify
from tests import browsers

pytestmark = pytest.mark.integration

PAGES = ("index.html", *(f"datasets/{name}/index.html" for name in
                         ("hostile", "shapes", "stories", "tones", "weights")))  # fmt: skip
REPORTS = ("statistics.html", "verification.html", "diff.html")
WIDE, PHONE, SMALL = (1280, 900), (390, 844), (320, 640)
# Pages are looked at there, too, by people.
SCREENSHOTS = Path(
    os.environ.get("MY_DATASETS_SCREENSHOTS", Path(__file__).parents[2] / "build" / "screenshots")
)


@pytest.fixture(scope="module")
def browser():
    with browsers.browser() as started:
        yield started


@pytest.fixture(scope="module")
def site(published, data_dir, tmp_path_factory):
    directory = tmp_path_factory.mktemp("browser") / "site"
    found = collect(published.store, keys=published.keys, memory=RollbackState(published.memory))
    write(found, directory, comparing=VersionComparer(None, workers=1))
    old, new = (data_dir / "weights" / version for version in ("1.1.0", "2.0.0"))
    damaged = directory.parent / "damaged"
    shutil.copytree(new, damaged)
    shard = next(damaged.glob("*-train.*-of-?????"))
    shard.write_bytes(shard.read_bytes()[:-7] + b"1234567")
    both = [Manifest.read(one).statistics for one in (old, new)]
    made = {
        "statistics.html": statistics_page("weights:2.0.0", both[1]),
        "verification.html": verification_page([verify(one, level=Level.DEEP, workers=1)
                                                for one in (damaged, old)]),
        "diff.html": diff_page(diff(old, new, workers=1), *both),
    }  # fmt: skip
    for name, text in made.items():
        (directory / name).write_text(text)
    return directory


@pytest.fixture(scope="module")
def address(site):
    with browsers.serving(site) as url:
        yield url


@pytest.fixture
def opened(browser, address):
    """Opens pages; fails if one asks for anything elsewhere, breaks its policy, or complains."""
    with contextlib.ExitStack() as stack:

        def open_page(path="index.html", size=WIDE, base=address, **options):
            context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
            stack.callback(context.close)
            page = context.new_page()
            complaints: list[str] = []
            stack.callback(lambda: pytest.fail(str(complaints)) if complaints else None)
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
            page.on(
                "request",
                lambda request: None if request.url.startswith(base)
                else complaints.append(f"asked for {request.url}"),
            )  # fmt: skip
            page.goto(f"{base}/{path}")
            return page

        yield open_page


def shown(page):
    return page.eval_on_selector_all(
        "#entries > li:not([hidden])", "items => items.map(one => one.dataset.name)"
    )


ALL = ["hostile", "shapes", "stories", "tones", "weights"]


def test_search(opened):
    page = opened()
    assert shown(page) == ALL
    page.keyboard.press("/")
    page.keyboard.type("CIRCLE box")
    assert shown(page) == ["shapes"]
    assert page.inner_text("#found") == "1 of 5 shown"
    page.keyboard.press("Escape")
    assert shown(page) == ALL
    page.fill("#search", "no such thing")
    assert page.is_visible("#nothing")
    page.click("#clear-all")
    assert (shown(page), page.input_value("#search")) == (ALL, "")
    # What hostile datasets are called is found, and is nothing but text.
    page.fill("#search", "<script>")
    assert shown(page) == ["hostile"]


def test_facets(opened):
    page = opened()
    page.get_by_role("checkbox", name="image").check()
    assert shown(page) == ["hostile", "shapes"]
    page.get_by_role("checkbox", name="CC BY 4.0").check()
    assert shown(page) == ["shapes"]
    page.get_by_role("checkbox", name="table").check()
    assert shown(page) == ["shapes", "weights"]
    page.click("#clear")
    assert shown(page) == ALL


def test_what_is_shown_stands_in_the_address(opened):
    page = opened()
    page.fill("#search", "a")
    page.get_by_role("checkbox", name="audio").check()
    page.select_option("#order", "-examples")
    address = page.url
    page.reload()
    assert page.url == address
    assert (shown(page), page.input_value("#search")) == (["tones"], "a")
    page.goto(address.partition("#")[0] + "#kind=image&order=nothing&q=%3Cb%3E&other=1")
    assert page.input_value("#search") == "<b>"
    assert page.input_value("#order") == "name"


def test_order(opened):
    page = opened()
    page.select_option("#order", "-examples")
    assert shown(page)[0] == "weights"
    assert shown(page)[-1] == "tones"
    page.select_option("#order", "-published")
    assert len(shown(page)) == 5


def wait_until_told(page, text):
    # Not wait_for_function: it polls by an eval, which the page's own policy forbids.
    page.wait_for_selector(f"div[role=status]:text-is('{text}')", state="attached")


def test_copying(opened):
    page = opened("datasets/tones/index.html", permissions=["clipboard-read", "clipboard-write"])
    code = page.locator(".snippets code").first.inner_text()
    page.locator(".snippets button.copy").first.click()
    wait_until_told(page, "Copied")
    assert page.evaluate("navigator.clipboard.readText()") == code
    assert "mds.load('tones:1.0.0'" in code
    page.locator("#citation + .code button").click()
    page.wait_for_selector("#citation + .code button.done")
    assert page.evaluate("navigator.clipboard.readText()") == "@misc{made, title={Made up}}"


def test_copying_where_pages_have_no_clipboard(opened):
    page = opened("datasets/tones/index.html", permissions=["clipboard-read", "clipboard-write"])
    page.evaluate("navigator.clipboard.writeText = undefined")
    page.locator(".snippets button.copy").first.click()
    wait_until_told(page, "Copied")
    assert "mds.load('tones:1.0.0'" in page.evaluate("navigator.clipboard.readText()")


def test_sounds_play(opened):
    page = opened("datasets/tones/index.html")
    assert page.locator("audio").count() == 6
    played = page.evaluate(
        """async () => {
          const sound = document.querySelector("audio");
          await sound.play();
          while (!sound.currentTime)
            await new Promise((done) => sound.addEventListener("timeupdate", done, { once: true }));
          return [sound.duration, sound.currentTime, sound.error];
        }"""
    )
    assert played[0] in (1, 2)
    assert played[1] > 0
    assert played[2] is None


def test_pictures_are_seen_and_boxes_lie_on_them(opened):
    page = opened("datasets/shapes/index.html")
    page.evaluate(
        """async () => {
          for (const one of document.querySelectorAll(".picture img")) {
            one.scrollIntoView();
            await one.decode();
          }
        }"""
    )
    gaps = page.evaluate(
        """[...document.querySelectorAll(".picture")].map((one) => {
          const place = (name) => one.querySelector(name).getBoundingClientRect();
          const [a, b] = [place("img"), place("svg")];
          return Math.max(Math.abs(a.x - b.x), Math.abs(a.y - b.y), Math.abs(a.width - b.width),
                          Math.abs(a.height - b.height));
        })"""
    )
    assert len(gaps) == 12
    assert max(gaps) < 1
    # The colour in the middle of a box is not that of the ground.
    middle = page.evaluate(
        """(() => {
          const one = document.querySelector(".picture"), image = one.querySelector("img");
          const box = one.querySelector("rect:not(.halo)");
          const canvas = document.createElement("canvas");
          [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
          const context = canvas.getContext("2d", { willReadFrequently: true });
          context.drawImage(image, 0, 0);
          const number = (name) => Number(box.getAttribute(name));
          const [x, y, w, h] = ["x", "y", "width", "height"].map(number);
          const at = (x, y) => [...context.getImageData(x, y, 1, 1).data];
          return [at(x + w / 2, y + h / 2), at(2, 2)];
        })()"""
    )
    assert max(abs(a - b) for a, b in zip(*middle, strict=True)) > 40


def test_dark_mode(opened):
    def ground(scheme):
        page = opened("datasets/weights/index.html", color_scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        plot = page.evaluate("getComputedStyle(document.querySelector('.plot text')).fill")
        return [sum(map(int, one[4:-1].split(","))) for one in (colour, plot)]

    (light, on_light), (dark, on_dark) = ground("light"), ground("dark")
    assert light > 700 > 100 > dark
    assert on_light < 200 < 600 < on_dark


def unfold(page):
    for one in page.locator("details").all():
        one.evaluate("one => { one.removeAttribute('name'); one.open = true; }")


@pytest.mark.parametrize("path", [*PAGES, *REPORTS])
def test_no_page_scrolls_sideways(opened, path):
    page = opened(path, PHONE, has_touch=True)
    unfold(page)
    for width, height in (PHONE, SMALL):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_phone_things_are_large_enough_to_touch(opened):
    page = opened(size=PHONE, has_touch=True)
    page.tap("#facets > summary")
    page.get_by_role("checkbox", name="audio").tap()
    assert shown(page) == ["tones"]
    for selector in ("#search", "#order", "#clear", ".facets label"):
        assert page.locator(selector).first.bounding_box()["height"] >= 24
    page.tap(".entry:not([hidden]) h2 a")
    page.wait_for_url("**/tones/index.html")


def test_by_keyboard(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        kind = page.evaluate(
            "document.activeElement.id || document.activeElement.innerText || "
            "document.activeElement.value"
        )
        reached.append(kind)
        if kind == "tones":
            break
    assert {"search", "order", "hostile", "shapes", "tones"} <= set(reached)
    outline = page.evaluate("getComputedStyle(document.activeElement, '::after').outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/tones/index.html")
    assert page.title() == "tones · Datasets"


def test_without_scripts_all_but_search_is_there(opened):
    page = opened(java_script_enabled=False)
    assert page.locator(".entry:visible").count() == 5
    assert not page.is_visible("#search")
    assert not page.is_visible("#order")
    # What the script looks in is there for the browser's own search, folded as it is.
    assert page.evaluate("window.find('objects/bbox')")
    assert not page.evaluate("window.find('objects/xyz')")
    page.click(".entry:has-text('shapes') summary")
    assert page.is_visible("text=circle, square")
    page.click("text=shapes")
    page.wait_for_url("**/shapes/index.html")
    assert page.locator(".picture:visible").count() == 12
    assert not page.is_visible(".copy >> nth=0")
    page.click("summary:has-text('PyTorch')")
    assert page.is_visible("text=torch_loader")
    assert not page.is_visible("text=mds.load(")


def seen(page):
    """Returns the names of the datasets that are seen."""
    return page.locator(".entry:visible h2").all_inner_texts()


def test_without_scripts_filters_work_by_mouse(opened):
    page = opened(java_script_enabled=False)
    page.get_by_role("checkbox", name="image").check()
    assert seen(page) == ["hostile", "shapes"]
    page.get_by_role("checkbox", name="table").check()
    assert seen(page) == ["hostile", "shapes", "weights"]
    page.get_by_role("checkbox", name="CC BY 4.0").check()
    assert seen(page) == ["shapes", "weights"]
    page.get_by_role("checkbox", name="table").uncheck()
    assert seen(page) == ["shapes"]
    page.get_by_role("checkbox", name="CC BY 4.0").uncheck()
    page.get_by_role("checkbox", name="<script>").check()  # the licence of the hostile one
    assert seen(page) == ["hostile"]
    page.click("#facets a")
    assert seen(page) == ALL


def test_without_scripts_filters_work_by_keyboard(opened):
    page = opened(java_script_enabled=False)
    for _ in range(4):
        page.keyboard.press("Tab")
        if page.locator("input:focus").count():
            break
    assert page.locator("input:focus").get_attribute("value") == "audio"
    page.keyboard.press("Space")
    assert seen(page) == ["tones"]


def test_without_scripts_filters_fold_on_a_phone(opened):
    page = opened(size=PHONE, has_touch=True, java_script_enabled=False)
    assert not page.get_by_role("checkbox", name="audio").is_visible()
    page.tap("#facets > summary")
    page.get_by_role("checkbox", name="audio").tap()
    assert seen(page) == ["tones"]


def test_from_a_directory_without_a_server(opened, site):
    page = opened(base=f"file://{site}")
    page.fill("#search", "tones")
    page.click(".entry:not([hidden]) h2 a")
    page.wait_for_url("**/tones/index.html")
    assert page.evaluate("document.fonts.status") == "loaded"
    assert page.evaluate("getComputedStyle(document.querySelector('.chip')).borderRadius") == "99px"
    assert page.evaluate(
        """(async () => {
          const sound = document.querySelector("audio");
          await sound.play();
          return sound.duration;
        })()"""
    ) in (1, 2)


@pytest.mark.parametrize("path", [*PAGES, *REPORTS])
def test_accessibility(opened, path):
    """No rule of axe-core is broken, those of good practice included, with all unfolded."""
    page = opened(path, bypass_csp=True)
    unfold(page)
    require_accessible(page)


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_accessibility_without_scripts(opened, size):
    """As if scripts were off, but for those of axe-core."""
    page = opened(size=size, bypass_csp=True)
    page.evaluate("document.documentElement.classList.remove('has-script')")
    unfold(page)
    page.get_by_role("checkbox", name="table").check()
    require_accessible(page)


def require_accessible(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = axe.run(page)
        broken = [
            (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
            for one in found.response["violations"]
        ]
        assert broken == [], scheme
        assert len(found.response["passes"]) > 10


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [("wide", WIDE, "light"), ("dark", WIDE, "dark"), ("phone", PHONE, "light"),
     ("phone-dark", PHONE, "dark")],
)  # fmt: skip
def test_screenshots_are_kept(opened, address, name, size, scheme):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page = opened(PAGES[0], size, color_scheme=scheme)
    for path in (*PAGES, *REPORTS):
        page.goto(f"{address}/{path}")
        plain = path.removesuffix("/index.html").removesuffix(".html").replace("/", "-")
        kept = SCREENSHOTS / f"{plain}-{name}.png"
        page.screenshot(path=kept, full_page=True)
        assert kept.stat().st_size > 5000
