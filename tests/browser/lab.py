"""A JupyterLab of a test's own, and a notebook in it as somebody with a mouse meets it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import Locator, Page, expect

ROOT: Final = Path(__file__).parent.parent.parent
CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMIUM_FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE: Final = 60.0
_RAN: Final = re.compile(r"\[\d+\]")
_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


def until(fact: Callable[[], bool], what: str, *, patience: float = PATIENCE) -> None:
    """Look until the fact holds."""
    deadline = time.monotonic() + patience
    while not fact():
        assert time.monotonic() < deadline, f"not within {patience:g} s: {what}"
        time.sleep(0.05)


class Lab:
    """A JupyterLab server in a folder, with settings, runtime and home of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder / "work"
        self._home = folder / "home"
        self._token = secrets.token_hex(16)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.folder.mkdir()
        self._log = (folder / "lab.log").open("w")
        for name, settings in _SETTINGS.items():
            self.setting(name, settings)
        home = str(self._home)
        own = dict.fromkeys(
            ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"), home
        )
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
                f"--ServerApp.port={self._port}", f"--IdentityProvider.token={self._token}",
                f"--ServerApp.root_dir={self.folder}", "--LabApp.expose_app_in_browser=True",
            ],
            env={**os.environ, **own, "PYTHONPATH": str(ROOT / "src"), "PYDEVD_DISABLE_FILE_VALIDATION": "1",
                 **(environment or {})},
            stdout=self._log, stderr=subprocess.STDOUT, cwd=self.folder,
        )  # fmt: skip
        until(self._answers, "JupyterLab answers")

    def setting(self, name: str, settings: Mapping[str, Any]) -> None:
        """Set what a user would set in the settings editor."""
        file = self._home / "lab" / "user-settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings), encoding="utf-8")

    def use_theme(self, name: str) -> None:
        """Open the next page in this theme."""
        self.setting("apputils-extension/themes", {"theme": name})

    def write(self, name: str, cells: Sequence[str]) -> None:
        """Write a notebook."""
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
        written = [{**code, "id": f"cell-{index}", "source": source} for index, source in enumerate(cells)]
        notebook = {"cells": written, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
        (self.folder / name).write_text(json.dumps(notebook), encoding="utf-8")

    def read(self, name: str) -> Any:
        """Read a notebook as it is saved."""
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def open(self, page: Page, name: str) -> Notebook:
        """Open a notebook in the page."""
        page.set_default_navigation_timeout(1000 * PATIENCE)
        page.goto(f"http://127.0.0.1:{self._port}/lab/tree/{name}?token={self._token}&reset")
        return Notebook(page)

    def stop(self) -> None:
        """Stop the server with its kernels."""
        self._process.send_signal(signal.SIGINT)
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _answers(self) -> bool:
        assert self._process.poll() is None, "JupyterLab did not start"
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/api?token={self._token}", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


class Notebook:
    """The notebook that is open in a page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible(timeout=1000 * PATIENCE)
        self.is_idle()

    def is_idle(self) -> None:
        """Wait until the kernel has nothing to do."""
        idle = "() => window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
        self.page.wait_for_function(idle, timeout=1000 * PATIENCE)

    def cell(self, index: int) -> Locator:
        """Answer a cell."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(index)

    def start(self, index: int) -> Locator:
        """Run a cell without waiting for it; answers its outputs."""
        self._choose(index)
        self.command("notebook:run-cell", wait=False)
        return self.cell(index).locator(".jp-OutputArea")

    def run(self, index: int) -> Locator:
        """Run a cell to its end; answers its outputs."""
        outputs = self.start(index)
        self.is_over(index)
        return outputs

    def is_over(self, index: int) -> None:
        """Wait until a cell that was started has come to its end."""
        expect(self.cell(index).locator(".jp-InputPrompt")).to_have_text(_RAN, timeout=1000 * PATIENCE)
        self.is_idle()

    def clear(self, index: int) -> None:
        """Clear a cell's outputs."""
        self._choose(index)
        self.command("notebook:clear-cell-output")

    def command(self, name: str, *, wait: bool = True) -> None:
        """Run one of JupyterLab's commands."""
        run = f"window.jupyterapp.commands.execute({json.dumps(name)})"
        self.page.evaluate(f"async () => {{ await {run} }}" if wait else f"() => {{ {run} }}")

    def restart(self) -> None:
        """Restart the kernel, as the button does once it is confirmed."""
        kernel = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
        self.page.evaluate(f"async () => {{ await {kernel}.restart() }}")
        self.is_idle()

    def interrupt(self) -> None:
        """Press the kernel's stop button."""
        self.command("notebook:interrupt-kernel")

    def _choose(self, index: int) -> None:
        self.page.evaluate(f"() => {{ window.jupyterapp.shell.currentWidget.content.activeCellIndex = {index} }}")

    def save(self) -> None:
        """Save the notebook."""
        self.command("docmanager:save")
