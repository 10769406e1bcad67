"""A real browser for tests of the page: Debian's chromium, driven by Playwright."""

import shutil

import pytest

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install -e '.[dev]')"
    )
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser here (looked for {', '.join(BROWSERS)}); on Debian: apt-get install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=FLAGS)
        yield opened
        opened.close()


class Opened:
    """A page as somebody has it open, without any network; whatever goes wrong is in `problems`."""

    def __init__(self, browser, path, **how):
        self.context = browser.new_context(**{"viewport": {"width": 1100, "height": 800}, **how}, offline=True)
        self.page = self.context.new_page()
        self.problems, self.asked = [], []
        self.page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_function("document.documentElement.dataset.ready === 'yes'", timeout=120_000)


@pytest.fixture
def look(browser):
    """Open a file; all that was opened is closed at the end."""
    opened = []

    def at(path, **how):
        opened.append(Opened(browser, path, **how))
        return opened[-1]

    yield at
    for one in opened:
        one.context.close()
