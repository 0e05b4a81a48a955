"""Serve a model over HTTP with `transformers serve` or vLLM, on this machine alone, and stop it again.

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
from importlib.util import find_spec
from pathlib import Path

from grpo_workbook.errors import WorkbookError
from grpo_workbook.loading import find_model

HOST = "127.0.0.1"  # loopback: nobody outside this machine can ask
ENGINES = ("transformers", "vllm")


@dataclass(frozen=True)
class Server:
    """A running server: `url` ends in /v1, `model` is the name to ask for."""

    url: str
    model: str
    pid: int

    def ask(self, messages: Sequence[dict], *, timeout: float = 120.0, **sampling) -> str:
        """One answer, over plain HTTP. `sampling` is what the interface takes: max_tokens, temperature, top_p, seed.

        `timeout` in seconds. Raises RuntimeError with the server's words when it refuses, OSError when it is gone or
        late.
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
    model: str,
    *,
    port: int | None = None,
    device: str = "cpu",
    dtype: str = "auto",
    engine: str = "transformers",
    start_limit: float = 180.0,
) -> Iterator[Server]:
    """A folder or hub id, served on loopback until the block ends. `port` None takes a free one.

    `engine` is "transformers", or "vllm" where that is installed: then `device` is vLLM's own choice. `dtype` is
    "auto", float32, float16 or bfloat16, `start_limit` the seconds that it may take to come up. Raises WorkbookError
    for a model or an engine that is not there or a port in use, RuntimeError with the end of the server's log when it
    does not start.
    """
    command = _command(engine, found := find_model(model), device)
    port = _free_port(port)
    command += ["--host", HOST, "--port", str(port), "--dtype", dtype]
    env = dict(os.environ)
    if Path(found).is_dir():
        env["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network for it
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
        )
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


def _command(engine: str, model: str, device: str) -> list[str]:
    """How the engine's own command line serves a model, up to host, port and dtype."""
    if engine not in ENGINES:
        raise WorkbookError(f"unknown engine {engine!r}: choose from {', '.join(ENGINES)}")
    if find_spec(engine) is None:
        raise WorkbookError(
            f"{engine} is not installed: pip install {engine}, or serve with engine='transformers'"
        )
    if engine == "transformers" and find_spec("fastapi") is None:
        raise WorkbookError(
            "`transformers serve` needs fastapi, uvicorn and openai: pip install fastapi uvicorn openai"
        )
    if engine == "vllm":
        return [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model]
    code = "from transformers.cli.transformers import main; main()"
    return [sys.executable, "-c", code, "serve", model, "--device", device]


def _free_port(port: int | None) -> int:
    if port is not None and not 0 < port < 65536:
        raise WorkbookError(f"the port is {port}: give one from 1 to 65535, or none for a free one")
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port or 0))
        except OSError as error:
            raise WorkbookError(
                f"port {port} cannot be had ({error.strerror}): give another, or none"
            ) from None
        return sock.getsockname()[1]


def _wait_until_ready(process, port: int, log, limit: float) -> None:
    deadline = time.monotonic() + limit
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with _open(f"http://{HOST}:{port}/health", 2):
                return
        except OSError:
            time.sleep(0.2)
    how = (
        f"ended with status {process.returncode}"
        if process.poll() is not None
        else f"said nothing for {limit:g} s"
    )
    log.seek(0)
    raise RuntimeError(
        f"the server {how}; the end of its log:\n{log.read().decode(errors='replace')[-2000:]}"
    )


def _open(request, timeout: float):
    """Past any proxy: loopback is asked directly."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request, timeout=timeout
    )
