"""The page in a real Chromium, driven over its DevTools protocol: from file://, by keyboard, light and dark."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stateward.evaluation.page import report_page
from stateward.evaluation.report import ReportOptions, build_task, compute

ROOT = Path(__file__).parents[2]
OPTIONS = ReportOptions(prices=ROOT / "configs" / "prices.yaml", resamples=300)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--window-size=1280,1000",
]


class Tab:
    """One tab. `requests` holds every URL the page asked for, `errors` every script error."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._ids = socket, itertools.count(1)
        self.requests: list[str] = []
        self.errors: list[Any] = []
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv(timeout=120))
            self._note(answer)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _note(self, event: dict[str, Any]) -> None:
        kind, params = event.get("method"), event.get("params", {})
        if kind == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif kind == "Runtime.exceptionThrown" or (
            kind == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning")
        ):
            self.errors.append(params)

    def open(self, path: Path, fragment: str = "") -> None:
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.as_uri() + fragment)
        self.wait("document.readyState === 'complete'")

    def js(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until the page itself says so; it polls between frames."""
        done = self.js(
            "new Promise((yes, no) => { const end = Date.now() + 60000; const look = () => {"
            f" if ({condition}) yes(1); else if (Date.now() > end) no(new Error('never'));"
            " else requestAnimationFrame(look); }; look(); })"
        )
        assert done == 1, condition

    def key(self, name: str, code: int) -> None:
        text = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **text)

    def screenshot(self, name: str) -> None:
        """For a person to look at: set STATEWARD_SCREENSHOTS to a folder."""
        folder = os.environ.get("STATEWARD_SCREENSHOTS")
        if folder:
            picture = self.call("Page.captureScreenshot", format="png")["data"]
            Path(folder, f"{name}.png").write_bytes(base64.b64decode(picture))


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    from websockets.sync.client import connect

    profile = tmp_path_factory.mktemp("chromium")
    process = subprocess.Popen(
        [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        address = next(line.split()[-1] for line in process.stderr if "DevTools listening on" in line)
        with connect(address, max_size=None, open_timeout=60) as browser:
            browser.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
            targets = json.loads(browser.recv(timeout=60))["result"]["targetInfos"]
            page = next(t["targetId"] for t in targets if t["type"] == "page")
        base = address.split("/devtools/")[0]
        with connect(f"{base}/devtools/page/{page}", max_size=None, open_timeout=60) as socket:
            yield Tab(socket)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()


@pytest.fixture
def page(campaign: Any, tmp_path: Path) -> Callable[..., Path]:
    evil = '<img src=x onerror="document.title=1"></script><script>document.title=2</script>'

    def write(**options: Any) -> Path:
        campaign.add("base", [4, 2, 0, 1, 3, 2], 4)
        campaign.add("tuned", [4, 4, 1, 0, 4, 3], 4)
        campaign.add("other", [1, 1, 1, 1, 1, 1], 4, messages=[{"role": "user", "content": evil}], voids=[(3, 0)])
        train = campaign.run_dir / "train"
        train.mkdir()
        rows = [{"step": s, "reward_mean": s / 9, "signal_free_share": 0.5, "episodes_run": 9} for s in range(1, 8)]
        (train / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        path = tmp_path / "report.html"
        path.write_text(report_page(compute(campaign.run_dir, OPTIONS), **options), encoding="utf-8")
        return path

    return write


def test_works_from_a_file_without_network_or_errors(tab: Tab, page: Callable[..., Path]) -> None:
    tab.requests.clear()
    tab.errors.clear()
    path = page()
    tab.open(path)
    assert tab.js("document.querySelectorAll('#task-list tbody tr').length") == 6
    assert tab.js("document.getElementById('count').textContent") == "6 of 6 tasks"
    tab.js("document.querySelector('.open').click()")
    tab.wait("document.querySelectorAll('.opened .trial').length === 12")
    tab.js("document.querySelector('.opened .trial').click()")
    tab.wait("document.querySelector('.episode')")
    assert [u for u in tab.requests if u not in (path.as_uri(), "about:blank")] == []
    assert tab.errors == []
    assert tab.js("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out sideways"


def test_a_conversation_with_its_failing_line_and_state_difference(tab: Tab, page: Callable[..., Path]) -> None:
    """A link opens the trial; what the model wrote is text, never markup."""
    path = page()
    tab.open(path, "#shop_tasks.py%3Atest_002/base/1")
    tab.wait("document.querySelector('.episode')")
    text = tab.js("document.querySelector('.episode').innerText")
    for part in ("base, trial 1", "✗ fail", "shop.py:12", "assert n == 1", "Please order item 1.", "reasoning"):
        assert part in text
    assert '→ order({"item": 1, "n": 2})' in text
    assert tab.js("[...document.querySelectorAll('.diff tbody tr')].map(r => r.innerText)") == [
        "shop.orders[0].n\tnull\t2"
    ]
    tab.open(path, "#shop_tasks.py%3Atest_002/other/0")
    tab.wait("document.querySelector('.episode')")
    assert "<img src=x" in tab.js("document.querySelector('.episode').innerText")
    assert tab.js("document.querySelectorAll('.episode img').length") == 0
    assert tab.js("document.title").startswith("Report of")


def test_keyboard_alone(tab: Tab, page: Callable[..., Path]) -> None:
    tab.open(page())
    tab.key("Tab", 9)
    assert tab.js("document.activeElement.className") == "skip", "the first stop skips the navigation"
    tab.js("document.getElementById('filter').focus()")
    tab.call("Input.insertText", text="test_003")
    tab.wait("document.getElementById('count').textContent === '1 of 6 tasks'")
    for _ in range(40):
        tab.key("Tab", 9)
        if tab.js("document.activeElement.classList.contains('open')"):
            break
    assert tab.js("document.activeElement.textContent") == "bank_tasks.py:test_003"
    tab.key("Enter", 13)
    tab.wait("document.querySelector('.opened .trial')")
    assert tab.js("document.activeElement.getAttribute('aria-expanded')") == "true"
    tab.key("Tab", 9)
    assert tab.js("document.activeElement.getAttribute('aria-label')").startswith("base trial 0, ")
    tab.key("ArrowRight", 39)
    assert tab.js("document.activeElement.getAttribute('aria-label')").startswith("base trial 1, ")
    tab.key("Enter", 13)
    tab.wait("document.querySelector('.episode')")
    assert tab.js("document.activeElement.className") == "episode", "focus moves to what was opened"
    tab.key("Tab", 9)  # out of the article, into its reasoning
    assert tab.js("document.activeElement.tagName") == "SUMMARY"


def test_sorting_and_filters(tab: Tab, page: Callable[..., Path]) -> None:
    tab.open(page())
    tuned = "[...document.querySelectorAll('#task-list tbody tr')].map(r => r.cells[4].textContent)"
    head = "document.querySelectorAll('#task-list thead th')[4]"
    tab.js(f"{head}.querySelector('button').click()")
    assert tab.js(f"{head}.getAttribute('aria-sort')") == "ascending"
    assert tab.js(tuned) == ["0/4", "1/4", "3/4", "4/4", "4/4", "4/4"]
    tab.js(f"{head}.querySelector('button').click()")
    assert tab.js(tuned)[0] == "4/4"
    tab.js(
        "const choice = document.getElementById('domain'); choice.value = 'bank';"
        " choice.dispatchEvent(new Event('input'))"
    )
    assert tab.js("document.getElementById('count').textContent") == "3 of 6 tasks"


def test_a_screen_reader_finds_names_for_everything(tab: Tab, page: Callable[..., Path]) -> None:
    tab.open(page())
    tab.js("document.querySelector('.open').click()")
    tab.wait("document.querySelector('.opened .trial')")
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    nameless = []
    seen: dict[str, list[str]] = {}
    for node in nodes:
        role = node.get("role", {}).get("value", "")
        name = node.get("name", {}).get("value", "")
        seen.setdefault(role, []).append(name)
        needs = ("button", "link", "textbox", "searchbox", "combobox", "image", "table", "region")
        if role in needs and not name and not node.get("ignored"):
            nameless.append(node)
    assert nameless == []
    assert "pass@k and pass^k" in seen["image"]
    assert {"find", "domain", "change"} <= set(seen["searchbox"] + seen.get("combobox", []))
    assert {"other trial 0, void", "other trial 1, fail"} & set(seen["button"])
    assert tab.js("document.documentElement.lang") == "en"
    levels = tab.js("[...document.querySelectorAll('h1,h2,h3')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels)), "no heading level is skipped"


#: WCAG 2.1's contrast of every text with what is behind it; returns those below 4.5.
CONTRAST = """(() => {
  const linear = (x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  const light = (c) => { const v = c.map((x) => linear(x / 255));
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
  const numbers = (s) => s.match(/[\\d.]+/g).map(Number);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const silent = ['SCRIPT', 'STYLE', 'TITLE', 'DESC'].includes(e.tagName.toUpperCase());
    if (!own || silent || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const ink = numbers(e.tagName === 'text' ? style.fill : style.color).slice(0, 3);
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push([e.tagName, e.className, e.textContent.slice(0, 30), ratio]);
  }
  return bad;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_readable_in_light_and_dark(tab: Tab, page: Callable[..., Path], scheme: str) -> None:
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    path = page()
    tab.open(path)
    tab.screenshot(f"top-{scheme}")
    tab.open(path, "#bank_tasks.py%3Atest_003/base/1")
    tab.wait("document.querySelector('.episode')")
    assert tab.js(CONTRAST) == []
    paper = tab.js("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    tab.js("document.querySelector('.episode').scrollIntoView()")
    tab.screenshot(f"episode-{scheme}")
    tab.call("Emulation.setEmulatedMedia", features=[])


def test_a_narrow_window(tab: Tab, page: Callable[..., Path]) -> None:
    tab.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
    path = page()
    tab.open(path)
    assert tab.js("document.documentElement.scrollWidth") <= 390, "wide tables scroll by themselves"
    tab.screenshot("narrow")
    tab.open(path, "#shop_tasks.py%3Atest_002/base/1")
    tab.wait("document.querySelector('.episode')")
    assert tab.js("document.documentElement.scrollWidth") <= 390
    assert tab.js("document.querySelector('.episode').getBoundingClientRect().right") <= 390, (
        "no need to scroll to read"
    )
    tab.screenshot("narrow-episode")
    tab.call("Emulation.clearDeviceMetricsOverride")


def test_a_leaderboard_draws_every_interval(tab: Tab, page: Callable[..., Path]) -> None:
    tab.open(page())
    tab.screenshot("leaderboard")
    rows = tab.js(
        "[...document.querySelectorAll('.leaderboard tbody tr')].map(r => [r.cells[0].textContent,"
        " [...r.querySelectorAll('svg')].map(s => s.getAttribute('aria-label'))])"
    )
    assert [name for name, _ in rows] == ["tuned", "base", "other"], "best first; the partial run last"
    assert rows[0][1][0].startswith("66.67 %, 95 % interval ")
    assert rows[2][1] == []
    assert tab.js("document.querySelector('.leaderboard tbody tr:last-child').innerText").count("not scored") == 1
    # Dots stand on one axis: the better run's further to the right.
    dots = tab.js(
        "[...document.querySelectorAll('.leaderboard tr td:nth-child(4) circle')].map(c => +c.getAttribute('cx'))"
    )
    assert dots == sorted(dots, reverse=True)


def test_a_page_too_small_for_whole_conversations(tab: Tab, campaign: Any, tmp_path: Path) -> None:
    """Texts are shortened and say so; a task's own page has them whole."""
    long = "".join(f"word{i} " for i in range(30_000))
    messages = [{"role": "user", "content": "Begin."}, {"role": "assistant", "content": long}]
    campaign.add("base", [1, 1, 1], 2, messages=messages)
    path = tmp_path / "r.html"
    path.write_text(report_page(compute(campaign.run_dir, OPTIONS), page_bytes=60_000), encoding="utf-8")
    assert path.stat().st_size <= 60_000
    uid = campaign.uids[0].replace(":", "%3A")
    tab.open(path, f"#{uid}/base/1")
    tab.wait("document.querySelector('.episode')")
    text = tab.js("document.querySelector('.episode').innerText")
    assert "characters …⟫" in text
    assert f"--task {campaign.uids[0]}" in text
    tab.open(build_task(campaign.run_dir, campaign.uids[0], OPTIONS), f"#{uid}/base/1")
    tab.wait("document.querySelector('.episode')")
    assert "word29999" in tab.js("document.querySelector('.episode').innerText")
