"""A short suite with other versions of torch and Python, each in an environment of its own below build/matrix.

    python tests/matrix.py                                     # the oldest and the newest that are supported
    python tests/matrix.py --torch 2.10.0 --python python3.12   # one combination

The wheels of torch on the package index bring CUDA along: an environment takes some 6 GB and three minutes to install.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MATRIX = (("python3.11", "2.8.0"), ("python3.13", "2.15.0"))
"""The oldest and the newest torch, beside the one in constraints.txt."""
SUITE = ("tests/nn", "tests/kernels", "tests/models/test_contract.py", "tests/train/test_loop.py", "tests/cli")
PACKAGES = ("pytest", "pytest-timeout", "hypothesis", "onnx", "onnxscript", "onnxruntime")


def main() -> None:
    """Install and test every combination; the exit status says whether all passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--torch", help="A version of torch.")
    parser.add_argument("--python", default="python3.11", help="The interpreter for it.")
    arguments = parser.parse_args()
    combinations = [(arguments.python, arguments.torch)] if arguments.torch else MATRIX
    results = {f"{python}, torch {torch}": run_suite(python, torch) for python, torch in combinations}
    for name, result in results.items():
        print(f"{name}: {result}")
    sys.exit(any("failed" in result or "error" in result for result in results.values()))


def run_suite(python: str, torch: str) -> str:
    """The last line of pytest in an environment with this interpreter and this torch."""
    if shutil.which(python) is None:
        return f"error: there is no {python}"
    folder = ROOT / "build" / "matrix" / f"{Path(python).name}-torch-{torch}"
    if not (folder / "ready").exists():
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        install = [folder / "bin" / "pip", "install", "--quiet", f"torch=={torch}", *PACKAGES, "--editable", ".[train]"]
        subprocess.run(install, cwd=ROOT, check=True)
        (folder / "ready").touch()
    options = ("-q", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers --timeout=300")
    # Other versions warn of other things.
    command = [folder / "bin" / "python", "-m", "pytest", *options, "-o", "filterwarnings=default", *SUITE]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else f"error: status {done.returncode}"


if __name__ == "__main__":
    main()
