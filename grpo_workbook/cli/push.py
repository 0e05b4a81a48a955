"""`python -m grpo_workbook push`: show what would go to the Hugging Face hub, and send it only with --yes.

Without --yes no request leaves this machine. The login is huggingface_hub's own (`hf auth login`): no option takes a
token, and none is read or printed here. Inside a notebook nothing is sent: what a cell says is stored with it.
"""

import argparse
import glob
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grpo_workbook.errors import WorkbookError, first_line, shorten, visible, wrap
from grpo_workbook.files import readable
from grpo_workbook.sources import why_offline

UNSAFE = (
    ".bin",
    ".pt",
    ".pth",
    ".pkl",
    ".pickle",
    ".ckpt",
    ".joblib",
)  # loading one runs what is in it
LARGE = 5 * 10**9  # bytes
READ = (".json", ".jsonl", ".md", ".txt", ".jinja", ".yaml", ".yml", ".py")
WORDS = ("tokenizer.json", "vocab.json", "merges.txt")  # a vocabulary holds anything
LEFT_OUT = (".git", ".cache", "__pycache__", ".ipynb_checkpoints")
# A path of some machine: below a common root, or with a drive's letter.
_PATH = re.compile(
    r"(?:(?<![\w:/.<])|(?<=file://))(?:/(?:home|root|Users|tmp|mnt|media|content|kaggle|work|workspace|scratch|data|opt|srv|var|private)/"
    r"[^\s\"',;)`\]]+|[A-Z]:\\+[^\s\"',;)`\]]+)"
)
_TOKEN = re.compile(rb"\bhf_[A-Za-z0-9]{30,}\b")
# Keys of others, and private ones. Not looked for in a vocabulary, where anything may stand.
_KEY = re.compile(
    rb"\bsk-(?:proj|ant|svcacct)-[\w-]{20,}|\bsk-[A-Za-z0-9]{40,}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_\w{40}"
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_PICKLE = re.compile(
    rb"\x80[\x02-\x05]|PK\x03\x04.*\.pkl", re.DOTALL
)  # of itself, or in torch's zip
BLOCK = 2**22  # bytes that are searched at a time
_REPOSITORY = re.compile(
    r"(?=.{3,96}$)(?!.*(?:--|\.\.))[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<![.-])(?<!\.git)"
)
EXAMPLES = """examples:
  python -m grpo_workbook push outputs/run/merged me/my-model --private
  python -m grpo_workbook push outputs/run/merged me/my-model --private --yes

The first shows what would be sent, and sends nothing.
Log in with `hf auth login`.
exit status: 0 well, 2 bad input, no login or no network
"""


@dataclass(frozen=True)
class Parcel:
    """What would be pushed where: (path in the repository, bytes) of every file, and what is odd about it."""

    folder: Path
    repository: str
    private: bool
    files: list[tuple[str, int]]
    warnings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        seen = "private" if self.private else "public, for everybody to read"
        lines = [*wrap(f"{readable(self.folder)} -> {self.repository} ({seen})", 80)]
        for name, size in [
            *self.files,
            (f"in {len(self.files)} files", sum(size for _, size in self.files)),
        ]:
            lines.append(f"  {amount(size):>9}  {shorten(name, 67)}")
        if card := _first_lines(self.folder / "README.md"):
            lines += ["", "The card begins:", *(f"  {shorten(line, 78)}" for line in card)]
        for warning in self.warnings:
            lines += ["", *wrap(f"warning: {warning}", 80, 9)]
        return "\n".join(lines)


def amount(size: int) -> str:
    """Bytes as one reads them, by powers of 1,000: 1.4 MB."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


def _first_lines(card: Path, most: int = 5) -> list[str]:
    """The first lines of a card's text, behind its metadata."""
    if not card.is_file():
        return []
    text = re.sub(
        r"\A---\n.*?\n---\n",
        "",
        card.read_text(encoding="utf-8", errors="replace"),
        flags=re.DOTALL,
    )
    return [line for line in text.splitlines() if line.strip()][:most]


def inspect(folder: str | Path, repository: str, private: bool = False) -> Parcel:
    """What pushing the folder would send. Nothing is sent, and nobody is asked.

    Raises WorkbookError for a folder that holds no model and no adapter, a name that is no repository, pickled weights,
    links, and what looks like a token in a file.
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise WorkbookError(f"{folder} is no folder: name a merged model's or an adapter's")
    if not any((place / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise WorkbookError(
            f"{folder} holds no model and no adapter (no config.json, no adapter_config.json): name the folder that "
            "merge or save_pretrained wrote"
        )
    if not _REPOSITORY.fullmatch(repository):
        raise WorkbookError(
            f"{repository!r} is no repository: give OWNER/NAME, such as me/my-model"
        )
    paths = sorted(_files(place))
    unsafe = [p for p in paths if p.suffix.lower() in UNSAFE or _is_pickle(p)]
    if unsafe:
        names = ", ".join(str(p.relative_to(place)) for p in unsafe[:5])
        raise WorkbookError(
            f"{names} may hold a pickle, and whoever loads one runs what is in it: save the weights as safetensors and "
            "delete the rest"
        )
    for path in paths:
        _check_secrets(path, str(path.relative_to(place)))
    warnings = []
    if not (place / "README.md").is_file():
        warnings.append(
            "there is no card (README.md): nobody will know what this is and how good it is"
        )
    if not any(p.suffix == ".safetensors" for p in paths):
        warnings.append("there are no weights (.safetensors)")
    for path in paths:
        name = str(path.relative_to(place))
        if path.stat().st_size > LARGE:
            warnings.append(
                f"{name} has {amount(path.stat().st_size)}: save it in shards of at most 5 GB"
            )
        if path.suffix in READ and path.name not in WORDS and path.stat().st_size < 10**7:
            warnings += _in_text(name, path.read_text(encoding="utf-8", errors="replace"))
    return Parcel(
        place,
        repository,
        private,
        [(str(p.relative_to(place)), p.stat().st_size) for p in paths],
        warnings,
    )


def _files(place: Path) -> Iterator[Path]:
    for path in place.rglob("*"):
        inside = path.relative_to(place)
        if any(part in LEFT_OUT for part in inside.parts):
            continue
        if path.is_symlink():
            raise WorkbookError(
                f"{inside} is a link, and what it leads to would be sent: copy it, or delete it"
            )
        if path.is_file():
            yield path


def _is_pickle(path: Path) -> bool:
    """Whether the file begins as a pickle does, whatever its name."""
    with path.open("rb") as file:
        return bool(_PICKLE.match(file.read(1024)))


def _check_secrets(path: Path, name: str) -> None:
    """Raise WorkbookError for a token or a key in any file but weights. It is not repeated."""
    if path.suffix in (".safetensors", ".gguf"):
        return
    line, tail = 1, b""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            block = tail + block.replace(b"\0", b"")  # UTF-16 has one beside each letter
            found = _TOKEN.search(block) or (path.name not in WORDS and _KEY.search(block))
            if found:
                raise WorkbookError(
                    f"{name}, line {line + block[: found.start()].count(10)}, holds what looks like a token or a key: "
                    "delete it there, and revoke it where it is from (the hub's: "
                    "https://huggingface.co/settings/tokens)"
                )
            tail = block[-256:]
            line += block[:-256].count(10)


def _in_text(name: str, text: str) -> list[str]:
    """Warnings about a text file."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := _PATH.search(line):
            mend = (
                "; who loads it elsewhere needs the base's hub id there"
                if name.endswith("adapter_config.json")
                else "; take it out"
            )
            return [f"{name}, line {number}, names a path of this machine ({found[0]}){mend}"]
    return []


def in_notebook() -> bool:
    """Whether this is a notebook's kernel, or was started by one (`!python -m ...`)."""
    return bool(os.environ.get("JPY_PARENT_PID")) or (
        "IPython" in sys.modules
        and getattr(sys.modules["IPython"].get_ipython(), "kernel", None) is not None
    )


def upload(parcel: Parcel) -> str:
    """Send it, with huggingface_hub's own login; returns the repository's address. Raises WorkbookError with the mend.

    A repository that is there keeps its other files. One that is public is not written to when --private was asked for.
    """
    if in_notebook():
        raise WorkbookError(
            "nothing is pushed from a notebook, where a login or its error would be stored with the outputs: run the "
            "same command in a terminal, after `hf auth login` there"
        )
    if reason := why_offline():
        raise WorkbookError(f"the hub cannot be reached: {reason}. Nothing was sent")
    from httpx import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    api = HfApi(library_name="grpo-workbook")
    try:
        api.whoami()
        address = api.create_repo(parcel.repository, private=parcel.private, exist_ok=True)
        if parcel.private and not api.repo_info(parcel.repository).private:
            raise WorkbookError(
                f"{parcel.repository} is there already and public: choose another name, or leave out --private. "
                "Nothing was sent"
            )
        api.upload_folder(
            repo_id=parcel.repository,
            folder_path=parcel.folder,
            allow_patterns=[glob.escape(name) for name, _ in parcel.files],
            commit_message="Upload by the GRPO Workbook",
        )
    except LocalTokenNotFoundError:
        raise WorkbookError(
            "there is no login to the hub here: run `hf auth login`. Nothing was sent"
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        mend = (
            "log in again with `hf auth login`, with a token that may write there"
            if status in (401, 403)
            else "try again later"
        )
        words = (error.server_message or str(error)).split("\n")[0]
        raise WorkbookError(f"the hub refused ({status}): {words}: {mend}") from None
    except (HTTPError, OSError) as error:
        raise WorkbookError(
            f"the connection to the hub broke off ({first_line(error)}): the same command tries again"
        ) from None
    return str(address)


# ------------------------------------------------------------------ the command


def add_parser(commands) -> None:
    """Add push to the command line."""
    parser = commands.add_parser(
        "push",
        help="show what would go to the hub; send it with --yes",
        usage="%(prog)s FOLDER OWNER/NAME [--private] [--yes]",
        description="Push a merged model or an adapter to the Hugging Face hub.\nWithout --yes it only shows what "
        "would be sent.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="FOLDER", help="a merged model or an adapter")
    parser.add_argument(
        "repository", metavar="OWNER/NAME", help="the repository; made if not there"
    )
    parser.add_argument("--private", action="store_true", help="for you alone; default: public")
    parser.add_argument("--yes", action="store_true", help="send it")


def main(args: argparse.Namespace) -> int:
    """Show, and with --yes send. Raises WorkbookError for bad input, no login, no network."""
    parcel = inspect(args.folder, args.repository, args.private)
    print(parcel)
    if not args.yes:
        print("\nNothing was sent. The same command with --yes sends it.")
        return 0
    sys.stdout.flush()
    print(f"\nsent to {visible(upload(parcel))}")
    return 0
