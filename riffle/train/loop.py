"""The training loop: steps, log lines, evaluations, checkpoints, and a clean end whatever happens."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from riffle.models.sequence import SequenceModel
from riffle.nn.memory import explain, footprint, free_bytes
from riffle.train.distributed import ALONE, World
from riffle.train.precision import arithmetic, set_matrix_precision
from riffle.train.record import Metrics, Unrecorded, environment, record_sitting
from riffle.train.run import Run
from riffle.train.step import TrainStep
from riffle.train.subject import subject_of

OnLog = Callable[[int, dict[str, float]], None]
OnEvaluation = Callable[[int, dict[str, float]], None]


class Interrupted(Exception):
    """The run was asked to stop, and saved its state."""

    def __init__(self, run: Run, step: int, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name} after step {step}; everything is saved")
        self.run, self.step, self.signal_number = run, step, signal_number


class NonFiniteLoss(Exception):
    """The loss, or the weights, became infinite or NaN."""

    def __init__(self, run: Run, step: int, what: str = "the loss is") -> None:
        saved = run.saved_step()
        good = f"the last good checkpoint is {run.checkpoint} at step {saved}" if saved else "no checkpoint exists yet"
        super().__init__(
            f"{what} not finite at step {step}; {good}. Try a smaller learning rate (train.learning_rate), "
            "train.precision=fp32, or another seed (train.seed)"
        )
        self.step = step


def train(
    run: Run,
    *,
    device: str | torch.device = "cpu",
    graph: bool = True,
    world: World = ALONE,
    on_log: OnLog = lambda step, values: None,
    on_evaluation: OnEvaluation = lambda step, accuracy: None,
) -> None:
    """Train the model of a run, from its checkpoint where there is one, and leave the result in its folder.

    Args:
        run: The run's folder, see :meth:`Run.create` and :meth:`Run.resume`.
        device: Where to train.
        graph: On a GPU, replay each step as one CUDA graph.
        world: The processes that train together, each of which calls this; a step then takes ``data.batch`` examples
            for each of them. Rank 0 alone evaluates and writes.
        on_log: Called with the step and the values of every line of metrics.jsonl.
        on_evaluation: Called with the step and the accuracy of every evaluation, by what was measured.
    """
    device = torch.device(device)
    experiment = run.experiment
    settings = experiment.train
    if world.leads:
        about = {**environment(device), "processes": world.size, "continued_from_step": run.saved_step()}
        record_sitting(run.folder, about)
    set_matrix_precision(settings.precision)
    torch.manual_seed(settings.seed)
    subject = subject_of(experiment, run.folder, device, world)
    model = subject.build(experiment.model, device=device)
    resumed = run.checkpoint.exists()
    if settings.start and not resumed:
        Run(Path(settings.start)).give(model, run)
    world.seed(settings.seed)
    step = TrainStep(experiment, model, subject, graph=graph, world=world)
    done = run.load(model, step) if resumed else 0
    world.refuse_differences([*model.state_dict().values(), *step.shared_state().values()])
    metrics = Metrics(run.folder, done) if world.leads else Unrecorded()
    try:
        with _signals() as received:
            since, logged = time.perf_counter(), done
            while done < settings.steps:
                _make(step)
                done += 1
                stop = world.highest(received[0] if received else 0)
                finished = done == settings.steps
                if finished or done % settings.log_every == 0:
                    progress = step.read()
                    if progress.first_bad is not None:
                        raise NonFiniteLoss(run, progress.first_bad)
                    now = time.perf_counter()
                    values = {
                        "loss": progress.loss,
                        "accuracy": progress.accuracy,
                        "learning_rate": float(step.learning_rate),
                        "steps_per_second": (done - logged) / (now - since),
                    }
                    since, logged = now, done
                    metrics.write(done, **values)
                    on_log(done, values)
                pause = time.perf_counter()
                if world.leads and settings.evaluate_every and (finished or done % settings.evaluate_every == 0):
                    accuracy = step.evaluate()
                    metrics.write(done, **{f"accuracy/{where}": value for where, value in accuracy.items()})
                    on_evaluation(done, accuracy)
                if finished or done % settings.checkpoint_every == 0 or stop:
                    _save(run, step)
                since += time.perf_counter() - pause
                if stop and not finished:
                    raise Interrupted(run, done, stop)
    finally:
        metrics.close()


def _make(step: TrainStep) -> None:
    """Make one step; where it does not fit into memory, say what would."""
    try:
        return step()
    except torch.OutOfMemoryError as error:
        said = str(error).split("\n")[0]
    experiment, device = step.experiment, step.step.device
    bins, batch = experiment.data.bins, experiment.data.batch
    if isinstance(step.model, SequenceModel) and not said.startswith("out of GPU memory"):  # in the backward pass
        x_BND = torch.empty(0, 1, experiment.model.features, device=device)
        with arithmetic(experiment.train.precision, device):
            needs = footprint(step.model.network, x_BND, training=True)
        said = explain(needs, [(batch, length) for length in bins], free_bytes(device))
    raise torch.OutOfMemoryError(f"{said}; a step takes data.batch={batch} examples of each of data.bins={list(bins)}")


def _save(run: Run, step: TrainStep) -> None:
    # Weights are only worth keeping if every loss behind them was finite, and they are themselves.
    first_bad = int(step.first_bad)
    if first_bad >= 0:
        raise NonFiniteLoss(run, first_bad)
    if not all(parameter.isfinite().all() for parameter in step.model.parameters()):
        raise NonFiniteLoss(run, int(step.step), "the weights are")
    run.save(step.model, step)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list for the loop to see; a second one takes effect at once."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)

    try:
        before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are somebody else's
        yield received
        return
    try:
        yield received
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
