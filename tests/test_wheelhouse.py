"""Wheels written again without their large parts: a small one made here, installed by pip."""

import base64
import csv
import hashlib
import io
import subprocess
import sys
import zipfile

import pytest
from conftest import REPO, finished

sys.path.insert(0, str(REPO / "benchmarks"))
import wheelhouse

GPU_PATH = """
import importlib.util, os, sys
left_out, find = sys.argv[1].split(","), importlib.util.find_spec

class LeftOut:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in left_out:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, LeftOut())
here = lambda name: name.partition(".")[0] not in left_out
importlib.util.find_spec = lambda name, *package: find(name, *package) if here(name) else None
os.environ["UNSLOTH_ALLOW_CPU"] = "1"  # take the path for CUDA
import unsloth
os.environ["UNSLOTH_ALLOW_CPU"] = "0"
import trl
from unsloth.models import rl
rl.PatchFastRL(None, None)
print(trl.GRPOTrainer.__name__, *sorted(sys.modules.keys() & set(left_out)))
"""


@pytest.fixture
def make_wheel(tmp_path):
    def make(name="parts", needs=(), extra=None, tag="py3-none-any"):
        info = f"{name}-1.0.dist-info"
        files = {f"{name}/__init__.py": "VALUE = 7\n", **(extra or {})}
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        files[f"{info}/METADATA"] = (
            metadata + "".join(f"Requires-Dist: {n}\n" for n in needs) + "\nRequires-Dist: prose\n"
        )
        files[f"{info}/WHEEL"] = (
            f"Wheel-Version: 1.0\nGenerator: here\nRoot-Is-Purelib: true\nTag: {tag}\n"
        )
        path = tmp_path / f"{name}-1.0-{tag}.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            listing = io.StringIO()
            rows = csv.writer(listing, lineterminator="\n")
            for file, text in files.items():
                wheel.writestr(file, text)
                digest = (
                    base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
                    .rstrip(b"=")
                    .decode()
                )
                rows.writerow([file, f"sha256={digest}", len(text.encode())])
            wheel.writestr(f"{info}/RECORD", listing.getvalue() + f"{info}/RECORD,,\n")
        return path

    return make


STUDIO = {
    "studio/app.js": "x" * 10_000,
    "studio/keep.so": "y" * 5000,
    'parts/a,"odd".txt': "odd name",
}


def test_a_slimmed_wheel_holds_what_is_left_and_says_so(make_wheel, tmp_path):
    new = tmp_path / "new"
    new.mkdir()
    made = wheelhouse.slim(make_wheel(extra=STUDIO), ("studio/*",), ("*/keep.so",), new)
    assert made.name == "parts-1.0-1slim-py3-none-any.whl"
    with zipfile.ZipFile(made) as wheel:
        assert wheel.testzip() is None
        names = wheel.namelist()
        assert "studio/app.js" not in names
        assert "studio/keep.so" in names
        rows = {
            row[0]: row[1:]
            for row in csv.reader(wheel.read("parts-1.0.dist-info/RECORD").decode().splitlines())
        }
        assert set(rows) == set(names)
        for name, (digest, size) in rows.items():
            if name.endswith("RECORD"):
                assert (digest, size) == ("", "")
                continue
            data = wheel.read(name)
            right = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={right}", len(data))
        assert "Build: 1slim" in wheel.read("parts-1.0.dist-info/WHEEL").decode()


def test_pip_installs_it(make_wheel, tmp_path):
    new, site = tmp_path / "new", tmp_path / "site"
    new.mkdir()
    made = wheelhouse.slim(make_wheel(extra=STUDIO), ("studio/*",), (), new)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--target",
        str(site),
        str(made),
    ]
    subprocess.run(pip, check=True)
    code = "import parts, importlib.metadata as m; print(parts.VALUE, m.version('parts'))"
    out = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(site)}, capture_output=True, text=True
    )
    assert out.stdout == "7 1.0\n"
    assert not (site / "studio").exists()


def test_only_the_named_cuda_libraries_are_kept(make_wheel):
    libraries = {f"parts/libbitsandbytes_cuda{n}.so": n for n in ("118", "128", "130")}
    wheel = make_wheel(extra=libraries)
    assert wheelhouse.cuda_libraries(wheel, ["12.8", "13.0"]) == (
        "*/libbitsandbytes_cuda128.so",
        "*/libbitsandbytes_cuda130.so",
    )
    with pytest.raises(
        wheelhouse.WheelhouseError,
        match=r"no library for CUDA 12\.9: choose from 11\.8, 12\.8, 13\.0",
    ):
        wheelhouse.cuda_libraries(wheel, ["12.9"])


def test_what_nobody_thought_of_is_named(make_wheel):
    needs = [
        "torch>=2",
        "other>=2",
        "newer>=1; python_version >= '3.14'",
        "unknown",
        "tests; extra == 'dev'",
    ]
    wheels = [make_wheel(needs=needs), make_wheel("other")]
    assert wheelhouse.unmet(wheels, {"torch"}, "3.12") == [
        "parts needs other>=2, and 1.0 is here",
        "parts needs unknown, which is in none of HAS, WANTED, UNNEEDED",
    ]


def test_the_limit_is_kept_to(capsys):
    rows = [
        ("big-1.0-1slim-py3-none-any.whl", 90 * wheelhouse.MIB, 60 * wheelhouse.MIB),
        ("small-1.0-x.whl", 9, 9),
    ]
    assert wheelhouse.show(rows, 64) == 0
    assert "slimmed" in capsys.readouterr().out
    assert wheelhouse.show(rows, 59) == 1
    assert "more than 59 MiB" in capsys.readouterr().err


def test_the_clone_is_carried_as_well():
    """The wheels with every package were 61.5 MiB, and did not fit beside it."""
    tracked = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True).stdout
    size = sum((REPO / f).stat().st_size for f in tracked.splitlines() if (REPO / f).is_file())
    assert wheelhouse.room() * wheelhouse.MIB + size <= 64 * wheelhouse.MIB
    assert wheelhouse.room() >= 40
    assert set(wheelhouse.OFTEN) <= set(wheelhouse.WANTED)


def test_every_wanted_package_has_one_version():
    pins = wheelhouse.pins()
    for name, version in wheelhouse.WANTED.items():
        assert bool(version) != (wheelhouse.canonicalize_name(name) in pins), name


def test_an_addition_without_a_pin_is_refused(tmp_path):
    with pytest.raises(
        wheelhouse.WheelhouseError, match="--also nonsense: only what requirements.txt pins"
    ):
        wheelhouse.collect("3.12", ["12.8"], tmp_path, [], ["nonsense"])


@pytest.mark.slow
def test_unsloths_gpu_path_loads_and_makes_its_trainer_without_what_is_left_out(tmp_path):
    left_out = sorted(name.replace("-", "_") for name in wheelhouse.UNNEEDED)
    command = [sys.executable, "-c", GPU_PATH, ",".join(left_out)]
    result = finished(command, tmp_path, PYTHONPATH=str(REPO))
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines()[-1] == "UnslothGRPOTrainer"
