"""The README's example for one's own project runs as it stands there."""

import re
import sys

import pytest
from conftest import REPO, finished

README = (REPO / "README.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]


@pytest.mark.trains
def test_the_example_runs_as_it_stands(tmp_path):
    (tmp_path / "data").symlink_to(REPO / "data")
    (tmp_path / "example.py").write_text(EXAMPLE, encoding="utf-8")
    result = finished([sys.executable, "example.py"], cwd=tmp_path, PYTHONPATH=str(REPO))
    assert result.returncode == 0, result.stderr[-3000:]
    strict, lenient = map(
        int, re.search(r"^(\d+) of 64 .*, (\d+) right", result.stdout, re.M).groups()
    )
    assert 0 < strict <= lenient <= 64
    same = float(re.search(r"same greedy token at ([\d.]+)%", result.stdout)[1])
    assert same >= 98
    assert (tmp_path / "mine" / "merged" / "model.safetensors").is_file()
