"""Take the pictures of the page that README and docs show, in a real Chromium.

python docs/pictures.py            (all of them, into docs/images; needs playwright, Pillow and Chromium)
python docs/pictures.py explore.webp
"""

import shutil
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from latentloop.files import writing

HERE = Path(__file__).parent
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BROKEN = [0, 3, 4, 7, 8, 10, 13, 17]
"""Nodes of the opening problem that are set to wrong values: a third of all."""
STEP, LOOK = 700, 2000
"""Milliseconds of a moment of the animation, and of one to look at."""


def break_values(page: Page) -> None:
    """Set a third of the values wrong at the end, and wait for the states that follow."""
    page.evaluate("latentloop.go(latentloop.last)")
    page.evaluate(f"latentloop.change({BROKEN}.map((node) => [node, (latentloop.truth[node] + 9) % 23]))")
    computed(page)


def computed(page: Page) -> None:
    """Wait until all states are there; the page's policy forbids what Playwright would wait with."""
    while not page.evaluate(
        "Boolean(globalThis.latentloop?.problem && !latentloop.computing && latentloop.wanted === undefined)"
    ):
        page.wait_for_timeout(100)


def opened(browser: Browser, width: int, height: int, scale: float) -> Page:
    """Open the shipped page, and wait until its problem is solved."""
    page = browser.new_page(
        viewport={"width": width, "height": height},
        device_scale_factor=scale,
        color_scheme="light",
        reduced_motion="reduce",  # what is drawn is drawn at once
    )
    page.set_default_timeout(0)  # a busy machine is slow
    page.goto((HERE / "explore.html").as_uri())
    computed(page)
    return page


def still(browser: Browser) -> bytes:
    """Return a PNG: why a value is what it is, halfway through the problem."""
    page = opened(browser, 1280, 800, 1.5)
    page.evaluate("latentloop.go(4)")
    page.evaluate("latentloop.select(14)")
    page.wait_for_timeout(1500)
    taken = Image.open(BytesIO(page.screenshot()))
    page.close()
    return content(taken.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE), "PNG", optimize=True)


def film(browser: Browser) -> bytes:
    """Return an animated WebP: a problem fills in, is broken, and heals. Narrow, so that text stays legible in a column."""
    page = opened(browser, 720, 840, 1)
    last = page.evaluate("latentloop.last")
    frames = [frame(page, iteration) for iteration in range(last + 1)]
    durations = [STEP] * last + [LOOK]
    break_values(page)
    frames += [frame(page, iteration) for iteration in range(last, page.evaluate("latentloop.last") + 1)]
    durations += [LOOK] + [STEP] * (len(frames) - len(durations) - 2) + [2 * LOOK]
    page.close()
    first, *others = with_one_palette(frames)
    return content(first, "WEBP", save_all=True, append_images=others, duration=durations, loop=0, lossless=True)


def frame(page: Page, iteration: int) -> Image.Image:
    """Return the page at an iteration."""
    page.evaluate(f"latentloop.go({iteration})")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return Image.open(BytesIO(page.screenshot())).convert("RGB")


def with_one_palette(frames: list[Image.Image]) -> list[Image.Image]:
    """Return frames with the same 255 colors: a third of the bytes, and what stands still does not flicker."""
    width, height = frames[0].size
    together = Image.new("RGB", (width, height * len(frames)))
    for place, each in enumerate(frames):
        together.paste(each, (0, place * height))
    palette = together.quantize(255, Image.Quantize.MEDIANCUT)
    return [each.quantize(palette=palette, dither=Image.Dither.NONE).convert("RGB") for each in frames]


def content(image: Image.Image, kind: str, **settings: Any) -> bytes:
    """Return the bytes of an image file."""
    file = BytesIO()
    image.save(file, kind, **settings)
    return file.getvalue()


PICTURES: dict[str, Callable[[Browser], bytes]] = {
    "explore.png": still,
    "explore.webp": film,
}


def main() -> None:
    """Take the pictures that are named, or all."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS, timeout=0)
        for name in sys.argv[1:] or PICTURES:
            picture = PICTURES[name](browser)
            with writing(HERE / "images" / name, "wb") as file:
                file.write(picture)
            print(f"wrote docs/images/{name}: {len(picture):,} bytes")
        browser.close()


if __name__ == "__main__":
    main()
