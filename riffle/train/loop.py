"""The training loop: steps, log lines, evaluations, checkpoints, and a clean end whatever happens."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from riffle.cost import out_of_memory_message
from riffle.environment import environment, free_bytes
from riffle.models.sequence import SequenceModel
from riffle.nn.execute import memory_model
from riffle.train.distributed import SINGLE_PROCESS, World
from riffle.train.objective import autocast, make_objective, set_matrix_precision
from riffle.train.run import Metrics, NullMetrics, Run, record_environment
from riffle.train.step import TrainStep

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
    world: World = SINGLE_PROCESS,
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
    config = run.config
    settings = config.train
    if world.is_rank0:
        about = {**environment(device), "processes": world.size, "continued_from_step": run.saved_step()}
        record_environment(run.folder, about)
    set_matrix_precision(settings.precision)
    torch.manual_seed(settings.seed)
    objective = make_objective(config, run.folder, device, world)
    model = objective.build(config.model, device=device)
    resumed = run.checkpoint.exists()
    if settings.start and not resumed:
        Run(Path(settings.start)).load_trained_weights(model, run)
    world.seed(settings.seed)
    step = TrainStep(config, model, objective, graph=graph, world=world)
    done = run.load(model, step) if resumed else 0
    world.check_equal([*model.state_dict().values(), *step.shared_state().values()])
    metrics = Metrics(run.folder, done) if world.is_rank0 else NullMetrics()
    try:
        with _signals() as received:
            since, logged = time.perf_counter(), done
            while done < settings.steps:
                _make(step)
                done += 1
                stop = world.all_reduce_max(received[0] if received else 0)
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
                if world.is_rank0 and settings.evaluate_every and (finished or done % settings.evaluate_every == 0):
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
    config, device = step.config, step.step.device
    bins, batch = config.data.bins, config.data.batch
    if isinstance(step.model, SequenceModel) and not said.startswith("out of GPU memory"):  # in the backward pass
        x_BND = torch.empty(0, 1, config.model.features, device=device)
        with autocast(config.train.precision, device):
            needs = memory_model(step.model.network, x_BND, training=True)
        said = out_of_memory_message(needs, [(batch, length) for length in bins], free_bytes(device))
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
