"""Serve a model over HTTP with `transformers serve`, on this machine alone, and stop it again.

    with serve("outputs/run/merged") as server:
        print(server.ask([{"role": "user", "content": "What is 2+3?"}]))

The interface is OpenAI's: any client of that kind can use `server.url`.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grpo_workbook.loading import find_model
from grpo_workbook.run import WorkbookError

HOST = "127.0.0.1"  # loopback: nobody outside this machine can ask


@dataclass(frozen=True)
class Server:
    """A running server: `url` ends in /v1, `model` is the name to ask for."""

    url: str
    model: str
    pid: int

    def ask(self, messages: Sequence[dict], *, timeout: float = 120.0, **sampling) -> str:
        """One answer, over plain HTTP. `sampling` is what the interface takes: max_tokens, temperature, top_p, seed.

        Raises RuntimeError with the server's words when it refuses.
        """
        body = json.dumps({"model": self.model, "messages": list(messages), **sampling}).encode()
        request = urllib.request.Request(
            f"{self.url}/chat/completions", data=body, headers={"Content-Type": "application/json"}
        )
        try:
            with _open(request, timeout) as answer:
                return json.load(answer)["choices"][0]["message"]["content"]
        except urllib.error.HTTPError as error:
            words = error.read(2000).decode(errors="replace")
            raise RuntimeError(f"the server answered {error.code}: {words}") from None


@contextmanager
def serve(
    model: str, *, port: int | None = None, device: str = "cpu", dtype: str = "auto", start_limit: float = 180.0
) -> Iterator[Server]:
    """`transformers serve` for a folder or hub id, on loopback, until the block ends. `port` None takes a free one.

    Raises WorkbookError for a model that is not there or a port in use, RuntimeError with the end of the server's log
    when it does not start.
    """
    found = find_model(model)
    port = _free_port(port)
    command = [sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve", found]
    command += ["--host", HOST, "--port", str(port), "--device", device, "--dtype", dtype]
    env = dict(os.environ)
    if Path(found).is_dir():
        env["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network for it
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        try:
            _wait_until_ready(process, port, log, start_limit)
            yield Server(f"http://{HOST}:{port}/v1", found, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port(port: int | None) -> int:
    if port is not None and not 0 < port < 65536:
        raise WorkbookError(f"the port is {port}: give one from 1 to 65535, or none for a free one")
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port or 0))
        except OSError as error:
            raise WorkbookError(f"port {port} cannot be had ({error.strerror}): give another, or none") from None
        return sock.getsockname()[1]


def _wait_until_ready(process, port: int, log, limit: float) -> None:
    deadline = time.monotonic() + limit
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with _open(f"http://{HOST}:{port}/health", 2):
                return
        except OSError:
            time.sleep(0.2)
    how = f"ended with status {process.returncode}" if process.poll() is not None else f"said nothing for {limit:g} s"
    log.seek(0)
    raise RuntimeError(f"the server {how}; the end of its log:\n{log.read().decode(errors='replace')[-2000:]}")


def _open(request, timeout: float):
    """Past any proxy: loopback is asked directly."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout)
