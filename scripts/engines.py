"""Make an environment with the engines beside us, Dask and Ray, for the examples that the tests run.

    python scripts/engines.py FOLDER

It has ballista_py as it is here, with what it needs, by `constraints.txt`. The development environment does without
them: Ray alone is 250 MB. Prints the path of its Python. What was made by the same words is taken as it is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WANTED = ["dask[dataframe]>=2026.3", "ray[data]>=2.55"]


def main() -> None:
    """Make the environment named on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: engines.py FOLDER")
    print(made(Path(sys.argv[1])))


def made(folder: Path) -> Path:
    """The Python of the environment. Raises `CalledProcessError` where something cannot be installed."""
    python, mark = folder / "bin" / "python", folder / "engines"
    package = ["-e", f"{ROOT}[read,node]"]
    words = " ".join([*package, *WANTED, (ROOT / "constraints.txt").read_text()])
    if mark.is_file() and mark.read_text() == words and python.exists():
        return python
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise FileNotFoundError("uv makes the environment: pip install uv")
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
    pip = [uv, "pip", "install", "--quiet", "--python", str(python), "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *package, *WANTED], check=True)
    mark.write_text(words)
    return python


if __name__ == "__main__":
    main()
