"""Take the pictures of the page that README and docs show, in a real Chromium.

python docs/pictures.py            (writes docs/images/explore.png and explore-repair.png; needs playwright and Chromium)
"""

import shutil
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def why(page: Page) -> None:
    """Show why a value is what it is, halfway through the problem."""
    page.evaluate("latentloop.go(4)")
    page.evaluate("latentloop.select(14)")


def repair(page: Page) -> None:
    """Break a third of the values at the end, and show the second iteration of the repair."""
    page.evaluate("latentloop.go(latentloop.last)")
    page.evaluate(
        "latentloop.change([0, 3, 4, 7, 8, 10, 13, 17].map((node) => [node, (latentloop.truth[node] + 9) % 23]))"
    )
    page.wait_for_timeout(1500)
    page.evaluate("latentloop.go(latentloop.changes[0].at + 1)")


def main() -> None:
    """Open the shipped page, and take both pictures."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, show, theme in (("explore", why, "light"), ("explore-repair", repair, "dark")):
            page = browser.new_page(
                viewport={"width": 1280, "height": 800},
                device_scale_factor=1.5,
                color_scheme=theme,
                reduced_motion="reduce",
            )
            page.goto((HERE / "explore.html").as_uri())
            while page.evaluate("!latentloop.panes[0]?.halt"):
                page.wait_for_timeout(100)
            show(page)
            page.wait_for_timeout(1500)
            taken = Image.open(BytesIO(page.screenshot()))
            taken.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(
                HERE / "images" / f"{name}.png", optimize=True
            )
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
