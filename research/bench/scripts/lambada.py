"""Train readers of LAMBADA on one GPU within a given time, and score them on the development set.

    python benchmarks/lambada.py levers data/lambada runs --seconds 150 --out results
    python benchmarks/lambada.py long data/lambada runs --seconds 520 --out results --set train.steps=25500
    python benchmarks/lambada.py rivals data/lambada runs --seconds 200 --out results
    python benchmarks/lambada.py step data/lambada --out results
    python benchmarks/lambada.py join results data/lambada runs/long

``step`` times the parts of a training step on a GPU. ``levers`` trains the recipe at half its maps on a part of the
text, then side by side the same with one setting changed each; with a corpus that has no more than this part, add
``--set data.share=1``. ``long`` trains one network of the paper's size, ``rivals`` the models of the paper's table.
When the seconds are over, every run is saved and scored with the weights it has; the same command goes on with it. OUT
gets PLAN.json and, of a long run, its weights in files of at most 15 MB, which ``join`` makes a run folder of again.

The models of ``rivals`` differ in speed, so each is timed beside the others first, and gets as many steps as it makes
until the seconds are over: all train for the same time, and their learning rates fall to 0 at its end.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from research.bench.scripts.lambada_speed import NOT_CAPTURED, READY_FILE, fit_steps, time_step
from research.reproduce.jobs import thin_metrics
from research.reproduce.runner import multi_process_service
from riffle.config import LambadaRunConfig, differences, override, run_config_from_dict
from riffle.environment import commit, environment
from riffle.files import read_json, write_json
from riffle.lambada.corpus import Corpus
from riffle.lambada.pointing import predict_answers
from riffle.lambada.train import make_lambada_objective
from riffle.recipes import lambada, with_model
from riffle.train.checkpoint import write_checkpoint
from riffle.train.loop import Interrupted, train
from riffle.train.objective import autocast
from riffle.train.run import Run, read_metrics

PLACEMENTS = (1, 16)
SCORED_AT_ONCE = 1024
FILE_BYTES = 15_000_000
STEP_BATCHES = (512, 1024)
SMALL = ["model.features=192", "train.steps=1300", "train.warmup=150", "data.share=0.04"]
"""A part of the text, so that passages are drawn as often as in a long run on all of it, and overfitting shows."""
RIVAL = ["data.words=60000", "train.steps=3000", "train.warmup=300", "train.log_every=25"]
"""All know as many words as the Universal Transformer of the paper does; steps are for calls without ``--seconds``."""
OTHER = [*RIVAL, "model.dropout=0"]
"""Few passages are seen twice in so short a time, and without dropout the other models learn faster."""
RUNS = "{runs}"
"""In a change, the folder of the plan's runs."""
QUIET = ["train.log_every=100", "train.evaluate_every=0", "train.checkpoint_every=1000000"]
GRACE_SECONDS = 20.0
"""How much later than planned a run with steps of its own may end before it is stopped."""


@dataclass(frozen=True)
class Plan:
    """Runs that are trained at the same time."""

    trials: dict[str, Sequence[str]]
    """The changes to the recipe, by the name of the run; ``model=NAME`` takes the recipe of another model."""
    keep: bool = False
    """Whether the weights are written to OUT."""
    timed: bool = False
    """Whether each run gets the steps that it makes until the seconds are over, see :func:`fit_steps`."""
    first: str | None = None
    """A run that is trained alone before the others: it compiles the kernels for them, and can be their teacher."""


PLANS = {
    "levers": Plan(
        {
            "nothing": SMALL,
            "placed twice": [*SMALL, "data.consistency=1e-6"],
            "consistency 0.5": [*SMALL, "data.consistency=0.5"],
            "consistency 2": [*SMALL, "data.consistency=2"],
            "distillation": [*SMALL, "data.distillation=0.5", f"data.teacher={RUNS}/nothing"],
            "no label smoothing": [*SMALL, "train.label_smoothing=0"],
            "no dropout": [*SMALL, "model.dropout=0"],
            "twice the dropout": [*SMALL, "model.dropout=0.2"],
            "weights averaged": [*SMALL, "train.average=0.99"],
            "constant rate": [*SMALL, "train.schedule=constant"],
            "constant rate, weights averaged": [*SMALL, "train.schedule=constant", "train.average=0.99"],
            "vectors corrected": [*SMALL, "data.rank=12"],
        },
        first="nothing",
    ),
    "long": Plan({"long": ["train.evaluate_every=5000"]}, keep=True),
    "rivals": Plan(
        {
            "gated-attention-reader": ["model=gated-attention-reader", *OTHER],
            "universal-transformer": ["model=universal-transformer", *OTHER],
            "universal-reader": ["model=universal-reader", *OTHER],
            "universal-reader, halting": ["model=universal-reader", "model.halting=true", *OTHER],
            "shuffle-exchange, gated": ["model.unit=gated", *RIVAL],
            "shuffle-exchange": RIVAL,
        },
        timed=True,
    ),
}


def trial_config(changes: Sequence[str], corpus: Path) -> LambadaRunConfig:
    """The recipe with changes; later ones win."""
    models = [change.removeprefix("model=") for change in changes if change.startswith("model=")]
    others = [change for change in changes if not change.startswith("model=")]
    config = override(with_model(lambada(), models[-1] if models else None), [*QUIET, *others, f"data.corpus={corpus}"])
    assert isinstance(config, LambadaRunConfig)
    return config


def train_and_score(
    folder: Path, device: str, *, graph: bool = True, until: float | None = None, beside: Sequence[Path] = ()
) -> None:
    """Train the run in a folder to its end or until a signal, and write score.json.

    With a time ``until``, in seconds of the epoch, a new run gets the steps it makes before, see :func:`fit_steps`.
    """
    if until is not None and not Run(folder).checkpoint.exists():
        fit_steps(Run(folder), torch.device(device), graph, until, beside)
    run = Run.resume(folder, Run(folder).config)
    since = time.perf_counter()
    try:
        train(run, device=device, graph=graph)
    except Interrupted as stopped:
        print(stopped, flush=True)
    with _ignore_sigterm():  # there is no training left to stop
        on_gpu = torch.device(device).type == "cuda"
        result = {"run": folder.name, "graph": graph and on_gpu, "train_seconds": round(time.perf_counter() - since, 1)}
        write_json(folder / "score.json", result | trained_result(run, torch.device(device)))


def trained_result(run: Run, device: torch.device) -> dict[str, Any]:
    """What a run was, how fast it trained and how well it reads."""
    begin = time.perf_counter()
    scores = score(run, device)
    metrics = read_metrics(run.folder)
    logged = [line for line in metrics if "steps_per_second" in line]
    rates = [line["steps_per_second"] for line in logged]
    steps = [line["step"] - before["step"] for before, line in pairwise([{"step": 0}, *logged])]
    return {
        "step": run.saved_step(),
        "changed": {name: new for name, (_, new) in differences(lambada(), run.config).items()},
        "passages_per_second": sorted(rates)[len(rates) // 2] * run.config.data.batch if rates else None,
        "step_seconds": round(sum(number / rate for number, rate in zip(steps, rates, strict=True)), 1),
        "score_seconds": round(time.perf_counter() - begin, 1),
        **scores,
        "environment": environment(device),
        "config": asdict(run.config),
        "metrics": thin_metrics(metrics),
    }


@contextmanager
def _ignore_sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@torch.inference_mode()
def score(run: Run, device: torch.device) -> dict[str, Any]:
    """Trained parameters, and accuracy on the development set in the precision of the training."""
    assert isinstance(run.config, LambadaRunConfig)
    model, objective = run.model(device), make_lambada_objective(run.config, run.folder, device)
    dataset = objective.dataset("development")
    accuracy = {}
    with autocast(run.config.train.precision, device):
        for placements in PLACEMENTS:
            predictions = predict_answers(model, dataset, objective.predict_rows, placements, batch=SCORED_AT_ONCE)
            accuracy[f"{placements} placement{'s' if placements > 1 else ''}"] = predictions.accuracy
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, "passages": len(dataset), "development": accuracy}


def write_weights(run: Run, out: Path) -> None:
    """The trained weights in a few files, none above 15 MB unless one tensor is."""
    parts: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in run.model("cpu").state_dict().items():
        size += tensor.nbytes
        if parts[-1] and size > FILE_BYTES:
            parts.append({})
            size = tensor.nbytes
        parts[-1][name] = tensor.contiguous()
    for number, part in enumerate(parts):
        save_file(part, out / f"{run.folder.name}-{number}.safetensors")


def measure_steps(arguments: argparse.Namespace) -> None:
    """Print and write the times of the long run's step at several batch sizes."""
    changes = [*PLANS["long"].trials["long"], *arguments.change]
    results = {}
    for batch in STEP_BATCHES:
        config = trial_config([*changes, f"data.batch={batch}"], arguments.corpus)
        results[str(batch)] = milliseconds = time_step(config)
        print(f"{batch}: {batch / milliseconds['step'] * 1000:,.0f} passages/s", milliseconds, flush=True)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        about = environment(torch.device("cuda"))
        write_json(arguments.out / "step.json", {"environment": about, "milliseconds": results})


def join(out: Path, corpus: Path, folder: Path) -> Run:
    """A run folder of the weights that a long run left in ``out``; word vectors come from the corpus."""
    about = read_json(out / f"{folder.name}.json", dict[str, Any])["runs"][folder.name]
    config = override(run_config_from_dict(about["config"]), [f"data.corpus={corpus}"])
    run = Run.create(folder, config)
    files = sorted(out.glob(f"{folder.name}-*.safetensors"))
    tensors = {f"model.{name}": tensor for file in files for name, tensor in load_file(file).items()}
    write_checkpoint(run.checkpoint, {**tensors, "step": torch.tensor(about["step"])})
    write_json(folder / "environment.json", about["environment"])
    assert run.lock is not None
    run.lock.release()
    run.model()  # writes the words, and refuses weights that do not fit
    return run


def run_plan(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train and score the runs of a plan, each in a process of its own; what came of them, by their names."""
    plan, until = PLANS[name], time.time() + arguments.seconds
    timed = plan.timed and arguments.seconds < float("inf")
    only = arguments.only or list(plan.trials)
    folders = {}
    for trial in only:
        folder = arguments.folder / trial.replace(",", "").replace(" ", "-")
        if not (folder / "config.json").exists():
            changes = [change.replace(RUNS, str(arguments.folder)) for change in plan.trials[trial]]
            run = Run.create(folder, trial_config([*changes, *arguments.change], arguments.corpus))
            assert run.lock is not None
            run.lock.release()
        folders[trial] = folder
        (folder / READY_FILE).unlink(missing_ok=True)
    together = [trial for trial in folders if trial != plan.first]
    clients = len(together) if arguments.device.startswith("cuda") else 0
    options = ["--device", arguments.device]
    if timed:
        options += ["--until", str(until), "--beside", *map(str, folders.values())]
        until += GRACE_SECONDS
    ended: dict[str, str] = {}
    if plan.first is not None and plan.first in folders:
        ended[plan.first] = _run_process(folders[plan.first], options, until, {})
    with multi_process_service(clients) as variables, ThreadPoolExecutor(len(folders)) as pool:
        ends = pool.map(lambda trial: _run_process(folders[trial], options, until, variables), together)
        ended |= dict(zip(together, ends, strict=True))
    runs = {}
    for trial, folder in folders.items():
        scored = (folder / "score.json").exists()
        log = (folder.parent / f"{folder.name}.log").read_text()
        runs[trial] = read_json(folder / "score.json", dict[str, Any]) if scored else {"failed": log[-3000:]}
        print(trial, ended[trial], *_summary(runs[trial]), flush=True)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        percent = variables.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
        about = {
            "plan": name,
            "command": ["OUT" if word == str(arguments.out) else word for word in sys.argv[1:]],
            "commit": arguments.commit or commit(),
            "seconds": arguments.seconds if arguments.seconds < float("inf") else None,
            "percent_of_multiprocessors": int(percent) if percent else None,
            "splits": Corpus(arguments.corpus).about["splits"],
        }
        write_json(arguments.out / f"{name}.json", about | {"runs": runs})
        if plan.keep:
            for folder in folders.values():
                write_weights(Run(folder), arguments.out)
    return runs


def _run_process(folder: Path, options: Sequence[str], stop_at: float, variables: dict[str, str]) -> str:
    """Run :func:`train_and_score` in a process, stopping its training in time; how it ended."""
    command = [sys.executable, __file__, "run", str(folder), *options]
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        for more in ([], ["--eager"]):
            process = subprocess.Popen([*command, *more], stdout=log, stderr=log, env={**os.environ, **variables})
            try:
                process.wait(max(0.0, stop_at - time.time()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)  # saves its state, and is scored
                process.wait()
            if process.returncode != NOT_CAPTURED:
                break
    (folder / READY_FILE).touch()  # nobody waits for a run that failed
    return f"exit {process.returncode}"


def _summary(result: dict[str, Any]) -> list[str]:
    if "failed" in result:
        return ["failed:", *result["failed"].strip().split("\n")[-1:]]
    accuracies = [f"{100 * value:.2f}" for scores in result["development"].values() for value in scores.values()]
    speed = result["passages_per_second"]
    return [f"step {result['step']}", *accuracies, f"{speed:,.0f} passages/s" if speed else ""]


def main() -> None:
    """Train the runs of a plan, one of them, or join the weights of a long run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in PLANS:
        plan = commands.add_parser(name)
        plan.add_argument("corpus", type=Path)
        plan.add_argument("folder", type=Path)
        plan.add_argument("--seconds", type=float, default=float("inf"), help="When all training ends.")
        plan.add_argument("--out", type=Path)
        plan.add_argument("--only", action="append", choices=PLANS[name].trials, help="A run; can be repeated.")
        plan.add_argument("--set", dest="change", action="append", default=[], metavar="KEY=VALUE")
        plan.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        plan.add_argument("--commit", help="That of the code, where it is no checkout.")
    one = commands.add_parser("run")
    one.add_argument("folder", type=Path)
    one.add_argument("--device", default="cpu")
    one.add_argument("--eager", action="store_true", help="Train without a CUDA graph.")
    one.add_argument("--until", type=float, help="When training shall end, in seconds of the epoch.")
    one.add_argument("--beside", type=Path, nargs="*", default=[], help="The folders of all runs timed together.")
    timed = commands.add_parser("step")
    timed.add_argument("corpus", type=Path)
    timed.add_argument("--out", type=Path)
    timed.add_argument("--set", dest="change", action="append", default=[], metavar="KEY=VALUE")
    joined = commands.add_parser("join")
    for name in ("out", "corpus", "folder"):
        joined.add_argument(name, type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        options = {"graph": not arguments.eager, "until": arguments.until, "beside": arguments.beside}
        return train_and_score(arguments.folder, arguments.device, **options)
    if arguments.command == "step":
        return measure_steps(arguments)
    if arguments.command == "join":
        join(arguments.out, arguments.corpus, arguments.folder)
    else:
        run_plan(arguments.command, arguments)
    return None


if __name__ == "__main__":
    main()
