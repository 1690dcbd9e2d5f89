"""A short suite with other versions of torch and Python, each in an environment of its own below build/matrix.

    python tests/matrix.py                                      # the oldest, the pinned and the newest torch
    python tests/matrix.py --torch 2.10.0 --python python3.12    # one combination
    python tests/matrix.py --oldest --cpu                        # what continuous integration runs

Wheels without CUDA are taken where PIP_EXTRA_INDEX_URL names an index that has them. Those of the package index bring
CUDA along: an environment then takes some 6 GB and three minutes to install. --cpu leaves such a combination out.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDEST = re.findall(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())[0] + ".0"
PINNED = re.findall(r"^torch==([\d.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[0]
MATRIX = (("python3.11", OLDEST), ("python3.13", PINNED), ("python3.13", "2.15.0"))
"""The oldest torch; the pinned one, which the whole suite runs with under Python 3.11; the newest that was tried."""
SUITE = ("tests/nn", "tests/kernels", "tests/models/test_contract.py", "tests/train/test_loop.py", "tests/cli")
PACKAGES = ("pytest", "pytest-timeout", "hypothesis", "onnx", "onnxscript", "onnxruntime")


def main() -> None:
    """Install and test every combination; the exit status says whether all passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--torch", help="A version of torch.")
    parser.add_argument("--python", default="python3.11", help="The interpreter for it.")
    parser.add_argument("--oldest", action="store_true", help="The oldest torch alone.")
    parser.add_argument("--cpu", action="store_true", help="Only with a wheel of torch that brings no CUDA along.")
    arguments = parser.parse_args()
    combinations = (
        [(arguments.python, arguments.torch)] if arguments.torch else MATRIX[: 1 if arguments.oldest else None]
    )
    results = {f"{python}, torch {torch}": run_suite(python, torch, arguments.cpu) for python, torch in combinations}
    for name, result in results.items():
        print(f"{name}: {result}")
    sys.exit(any("failed" in result or "error" in result for result in results.values()))


def run_suite(python: str, torch: str, cpu: bool) -> str:
    """The last line of pytest in an environment with this interpreter and this torch."""
    folder = ROOT / "build" / "matrix" / f"{Path(python).name}-torch-{torch}"
    if not (folder / "ready").exists():
        try:
            subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"error: {error}"
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wheel = f"torch=={torch}+cpu" if cpu else f"torch=={torch}"
        if cpu and subprocess.run([*pip, "--dry-run", "--no-deps", wheel], capture_output=True, check=False).returncode:
            return f"left out: no wheel of torch {torch} without CUDA can be reached"
        subprocess.run([*pip, wheel, *PACKAGES, "--editable", ".[train]"], cwd=ROOT, check=True)
        (folder / "ready").touch()
    options = ("-q", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers --timeout=300")
    # Other versions warn of other things.
    command = [folder / "bin" / "python", "-m", "pytest", *options, "-o", "filterwarnings=default", *SUITE]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else f"error: status {done.returncode}"


if __name__ == "__main__":
    main()
