"""push as a user calls it, against a real HTTP server on loopback that stands in for the hub."""

import base64
import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import REPO, cli

from grpo_workbook.cli.push import inspect
from grpo_workbook.errors import WorkbookError

TOKEN = "hf_" + "t" * 34


class Hub:
    """What a hub answers to an upload; every request is kept as (method, path, headers, body)."""

    def __init__(self):
        self.requests, self.private, self.refuse = [], True, {}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer()

            def do_POST(self):
                self.answer()

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                hub.requests.append((self.command, self.path, self.headers, body))
                status, value = hub.reply(self.path, body)
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reply(self, path, body):
        for part, (status, words) in self.refuse.items():
            if part in path:
                return status, {"error": words}
        if path == "/api/whoami-v2":
            return 200, {"name": "me", "type": "user", "orgs": [], "auth": {}}
        if path == "/api/repos/create":
            return 200, {"url": f"{self.address}/me/model", "id": "1", "name": "me/model"}
        if "/preupload/" in path:
            files = [
                {"path": f["path"], "uploadMode": "regular"} for f in json.loads(body)["files"]
            ]
            return 200, {"files": [f | {"shouldIgnore": False, "oid": None} for f in files]}
        if "/commit/" in path:
            return 200, {
                "commitUrl": f"{self.address}/me/model/commit/0",
                "commitOid": "0" * 40,
                "success": True,
            }
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        return 200, {
            "id": "me/model",
            "private": self.private,
            "sha": "0" * 40,
            "tags": [],
            "siblings": [],
        }

    def paths(self):
        return [path for _, path, _, _ in self.requests]


@pytest.fixture
def hub():
    hub = Hub()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


@pytest.fixture
def model(tmp_path):
    return shutil.copytree(REPO / "data" / "tiny-qwen3", tmp_path / "model")


def push(*arguments, hub=None, **env):
    at = {"HF_ENDPOINT": hub.address} if hub else {}
    quiet = {
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": TOKEN,
        "JPY_PARENT_PID": "",
    }
    return cli("push", *arguments, **({**quiet, **at} | env))


def test_without_yes_everything_is_shown_and_no_request_leaves(model, hub):
    result = push(model, "me/model", "--private", hub=hub)
    assert result.returncode == 0, result.stderr
    assert hub.requests == []
    for path in model.iterdir():
        assert path.name in result.stdout
    assert "me/model (private)" in " ".join(result.stdout.split())
    assert "in 7 files" in result.stdout
    assert "The card begins:" in result.stdout
    assert "Nothing was sent" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_with_yes_every_file_arrives_and_the_token_is_not_shown(model, hub):
    result = push(model, "me/model", "--private", "--yes", hub=hub)
    assert result.returncode == 0, result.stderr
    assert f"sent to {hub.address}/me/model" in result.stdout
    created = next(
        json.loads(body) for _, path, _, body in hub.requests if path == "/api/repos/create"
    )
    assert (created["name"], created["organization"]) == ("model", "me")
    assert created.get("private") is True or created.get("visibility") == "private"
    lines = (
        next(body for _, path, _, body in hub.requests if "/commit/" in path).decode().splitlines()
    )
    sent = {
        line["value"]["path"]: base64.b64decode(line["value"]["content"])
        for line in map(json.loads, lines)
        if line["key"] == "file"
    }
    assert sent == {path.name: path.read_bytes() for path in model.iterdir()}
    assert all(headers["Authorization"] == f"Bearer {TOKEN}" for _, _, headers, _ in hub.requests)
    assert TOKEN not in result.stdout + result.stderr


def test_what_the_hub_refuses_is_one_line(model, hub):
    hub.refuse = {"/commit/": (403, "You don't have the rights to write to this repository")}
    result = push(model, "me/model", "--yes", hub=hub)
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if line.strip()]
    assert line.startswith("error: the hub refused (403): You don't have the rights")
    assert "hf auth login" in line
    assert TOKEN not in result.stdout + result.stderr


def test_private_is_not_sent_to_a_public_repository(model, hub):
    hub.private = False
    result = push(model, "me/model", "--private", "--yes", hub=hub)
    assert result.returncode == 2
    assert "is there already and public" in result.stderr
    assert not [path for path in hub.paths() if "/commit/" in path]


def test_no_login_no_network_and_a_notebook_are_each_said_with_the_mend(model, hub, tmp_path):
    result = push(model, "me/model", "--yes", hub=hub, HF_TOKEN="", HF_HOME=str(tmp_path / "home"))
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "run `hf auth login`. Nothing was sent" in result.stderr
    result = push(model, "me/model", "--yes", HF_ENDPOINT="http://127.0.0.1:1")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "the hub cannot be reached: 127.0.0.1 does not answer" in result.stderr
    result = push(model, "me/model", "--yes", hub=hub, JPY_PARENT_PID="1")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "nothing is pushed from a notebook" in result.stderr
    assert hub.requests == []


def test_what_must_not_be_pushed_is_refused(model, tmp_path):
    with pytest.raises(WorkbookError, match="is no repository: give OWNER/NAME"):
        inspect(model, "model")
    with pytest.raises(WorkbookError, match="holds no model and no adapter"):
        inspect(REPO / "tests", "me/model")
    with pytest.raises(WorkbookError, match="is no folder"):
        inspect(tmp_path / "none", "me/model")
    (model / "deep").mkdir()
    (model / "deep" / "training_args.bin").write_bytes(b"")
    with pytest.raises(WorkbookError, match=r"deep/training_args\.bin may hold a pickle"):
        inspect(model, "me/model")
    (model / "deep" / "training_args.bin").unlink()
    (model / "notes.txt").write_text(f"first\ntoken={TOKEN}\n")
    with pytest.raises(
        WorkbookError, match="notes.txt, line 2, holds what looks like a token"
    ) as caught:
        inspect(model, "me/model")
    assert TOKEN not in str(caught.value)
    (model / "notes.txt").unlink()
    (model / "all").symlink_to(tmp_path)
    with pytest.raises(WorkbookError, match="all is a link"):
        inspect(model, "me/model")


def test_what_is_odd_is_warned_of(model):
    assert inspect(model, "me/model").warnings == []
    (model / "README.md").unlink()
    (model / "model.safetensors").unlink()
    with (model / "model-1.safetensors").open("wb") as file:
        file.truncate(5 * 10**9 + 1)
    (model / "adapter_config.json").write_text('{\n"base_model_name_or_path": "/home/ada/base"}')
    (model / "links.md").write_text("see https://example.org/home/ada and </tmp> and a/tmp/b")
    (model / ".cache").mkdir()
    (model / ".cache" / "x.bin").write_bytes(b"")
    parcel = inspect(model, "me/model")
    assert ".cache/x.bin" not in dict(parcel.files)
    card, large, path = sorted(parcel.warnings, key=lambda w: ("card" not in w, "5 GB" not in w))
    assert "there is no card" in card
    assert "model-1.safetensors has 5.0 GB" in large
    assert "adapter_config.json, line 2, names a path of this machine (/home/ada/base)" in path
    assert "hub id" in path


SECRETS = {
    ".env": f"HF_TOKEN={TOKEN}",
    "notes": "one\ntwo\n" + TOKEN,
    "page.html": f"<b>{TOKEN}</b>",
    "tokenizer.json": TOKEN,
    "README.md": "\n".join(["OPENAI_API_KEY=sk-proj-" + "a1B2" * 8]),
    "id_rsa": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "log.txt": "x" * 2**22 + "\n" + TOKEN,
    "aws.json": "AKIA" + "Q2" * 8,
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_in_any_file_is_refused_and_not_repeated(model, name):
    (model / name).write_text(SECRETS[name])
    with pytest.raises(WorkbookError, match="holds what looks like a token or a key") as error:
        inspect(model, "me/model")
    assert SECRETS[name][-16:] not in str(error.value)
    assert str(error.value).startswith(f"{name}, line {1 + SECRETS[name].count(chr(10))}, ")


def test_a_token_in_utf_16_is_found(model):
    (model / "README.md").write_bytes(f"x {TOKEN}".encode("utf-16"))
    with pytest.raises(WorkbookError, match="looks like a token"):
        inspect(model, "me/model")


def test_a_pickle_under_another_name_is_refused(model):
    import pickle

    import torch

    (model / "extra.safetensors").write_bytes(pickle.dumps({"weights": [1.0]}))
    with pytest.raises(WorkbookError, match=r"extra\.safetensors may hold a pickle"):
        inspect(model, "me/model")
    torch.save({"w": torch.ones(2)}, model / "extra.safetensors")
    with pytest.raises(WorkbookError, match=r"extra\.safetensors may hold a pickle"):
        inspect(model, "me/model")
    (model / "extra.safetensors").unlink()
    torch.save({"w": torch.ones(2)}, model / "weights.dat")
    with pytest.raises(WorkbookError, match=r"weights\.dat may hold a pickle"):
        inspect(model, "me/model")
    (model / "weights.dat").unlink()
    (model / "run_card.json").write_text('{"data": "file:///home/me/data.jsonl"}')
    assert any("/home/me/data.jsonl" in w for w in inspect(model, "me/model").warnings)
