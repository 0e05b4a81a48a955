"""The README's example for one's own project runs as it stands there, and is as short as it says."""

import re
import subprocess
import sys

from conftest import REPO, environment

EXAMPLE = re.search(
    r"```python\n(.*?)```", (REPO / "README.md").read_text(encoding="utf-8"), re.DOTALL
)[1]


def test_the_example_runs_as_it_stands(tmp_path):
    assert len([line for line in EXAMPLE.splitlines() if line]) == 15
    (tmp_path / "templates").symlink_to(REPO / "templates")
    (tmp_path / "example.py").write_text(EXAMPLE, encoding="utf-8")
    env = environment(PYTHONPATH=str(REPO))
    result = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "4/4" in result.stderr  # the bar
    assert re.search(r"^(FINE|NOTE|WARN|SEVERE)\w*  \w+", result.stdout, re.MULTILINE)
