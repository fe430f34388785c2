import base64
from pathlib import Path
from typing import Any, Literal

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.support.servers import until

COLOURS: tuple[Literal["light", "dark"], ...] = ("light", "dark")

# WCAG's contrast ratio of each visible text to the nearest background behind it.
_CONTRASTS = """
const channel = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const numbers = text => text.match(/[\\d.]+/g).map(Number);
const background = element => {
  for (let each = element; each; each = each.parentElement) {
    const [r, g, b, alpha = 1] = numbers(getComputedStyle(each).backgroundColor);
    if (alpha > 0) return [r, g, b];
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
};
const texts = [...document.body.querySelectorAll("*")].filter(element =>
  element.checkVisibility() && [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
return texts.map(element => {
  const [a, b] = [luminance(numbers(getComputedStyle(element).color)), luminance(background(element))];
  return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.textContent.trim().slice(0, 40)];
});
"""


class Browser:
    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, address: str | Path) -> None:
        self.driver.get(address.resolve().as_uri() if isinstance(address, Path) else address)

    def wait_for(self, address: str) -> None:
        """Wait until a page that a click or a key asked for is there, which takes its time on a busy machine."""
        until(lambda: self.driver.current_url == address, address)
        until(lambda: self.ask("return document.readyState") == "complete", "all of the page")

    def log_in(self, token: str | None) -> None:
        self.driver.execute_cdp_cmd("Network.enable", {})
        credentials = base64.b64encode(f"anybody:{token}".encode()).decode()
        headers = {} if token is None else {"Authorization": f"Basic {credentials}"}
        self.driver.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": headers})

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, colours: Literal["light", "dark"]) -> None:
        feature = {"name": "prefers-color-scheme", "value": colours}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def ask(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def complaints(self) -> list[str]:
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]

    def contrasts(self) -> list[tuple[float, str]]:
        return sorted((ratio, text) for ratio, text in self.ask(_CONTRASTS))

    def overflows(self) -> bool:
        return bool(self.ask("return document.documentElement.scrollWidth > innerWidth"))

    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def press_tab(self) -> str:
        """Move the focus on by the keyboard, and return the text or name of what has it."""
        self.driver.switch_to.active_element.send_keys(Keys.TAB)
        return str(self.ask("const a = document.activeElement; return a.textContent.trim() || a.name || a.tagName"))

    def requests(self) -> list[str]:
        return list(self.ask('return performance.getEntriesByType("resource").map(entry => entry.name)'))
