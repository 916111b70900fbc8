"""A real JupyterLab in headless Chromium, as small as the tests need it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT = 90_000  # milliseconds


def find_chromium() -> str | None:
    """The path of an installed Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _own_settings(folder: Path) -> dict[str, str]:
    """Variables that keep JupyterLab from using or changing the settings of whoever runs this.

    The question whether to fetch news is answered.
    """
    news = folder / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    news.parent.mkdir(parents=True, exist_ok=True)
    news.write_text('{"fetchNews": "false"}')
    return {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }


@contextmanager
def running_lab(folder: Path) -> Iterator[str]:
    """A JupyterLab that serves `folder`; gives its address."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"),
        *("--IdentityProvider.token=", "--expose-app-in-browser", f"--ServerApp.root_dir={folder}"),
    ]
    log = open(folder / "lab.log", "wb")  # noqa: SIM115
    own = _own_settings(folder / ".lab")
    process = subprocess.Popen(
        command,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env={**os.environ, **own},
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{address}/api", timeout=5).read()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError((folder / "lab.log").read_text()) from None
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # kernels that were still busy
        process.wait()
        log.close()


def write_notebook(path: Path, *cells: str) -> None:
    """A notebook with code cells."""
    content = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell{number}",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": source,
            }
            for number, source in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(content))


class LabPage:
    """One browser page with a JupyterLab in it."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        page.set_default_timeout(TIMEOUT)
        self.outside: list[str] = []
        self.errors: list[str] = []
        page.on("request", self._watch)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _watch(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:", "ws://127.0.0.1")):
            self.outside.append(request.url)

    def open(self, name: str, *, run: bool = True) -> None:
        """Open a notebook and run all its cells."""
        self.page.goto(f"{self.address}/lab?reset", wait_until="domcontentloaded")
        self.page.wait_for_function("() => window.jupyterapp")
        self.page.evaluate("async () => { await window.jupyterapp.restored; }")
        self.page.evaluate(
            """async (path) => {
                const widget = await window.jupyterapp.commands.execute(
                    'docmanager:open', { path });
                await widget.context.ready;
                await widget.context.sessionContext.ready;
                window.notebook = widget;
                await window.jupyterapp.commands.execute('application:toggle-left-area');
            }""",
            name,
        )
        if run:
            # Not awaited: an open dialog would make it wait for ever.
            self.page.evaluate(
                "() => { void window.jupyterapp.commands.execute('notebook:run-all-cells'); }"
            )

    def wait_idle(self) -> None:
        """Wait until every code cell was run."""
        self.page.wait_for_function(
            """() => window.notebook.content.widgets
                .filter((cell) => cell.model.type === 'code' && cell.model.sharedModel.source)
                .every((cell) => cell.model.executionCount !== null)"""
        )

    def python(self, code: str) -> str:
        """Run code in the notebook's kernel and give what it prints."""
        return str(
            self.page.evaluate(
                """async (code) => {
                    const kernel = window.notebook.context.sessionContext.session.kernel;
                    const future = kernel.requestExecute({ code, store_history: false });
                    let text = '';
                    future.onIOPub = (message) => {
                        const content = message.content;
                        if (message.header.msg_type === 'stream') text += content.text;
                        if (message.header.msg_type === 'error') text += content.traceback.join('');
                    };
                    await future.done;
                    return text;
                }""",
                code,
            )
        ).strip()
