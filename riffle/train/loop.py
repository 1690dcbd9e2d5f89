"""The training loop: steps, log lines, evaluations, checkpoints, signals and failures."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType

import torch

from riffle.config import TrainConfig
from riffle.environment import environment, is_out_of_memory
from riffle.files import FolderLock
from riffle.train.distributed import SINGLE_PROCESS, RankGroup
from riffle.train.objective import make_objective, set_matrix_precision
from riffle.train.run import MetricsWriter, Run, record_environment
from riffle.train.step import TrainStep

OnMetrics = Callable[[int, dict[str, float]], None]
"""Called with a step and its metrics by name."""


class Interrupted(Exception):
    """A signal stopped the run after it saved its state."""

    def __init__(self, run: Run, step: int, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name} after step {step}; everything is saved")
        self.run, self.step, self.signal_number = run, step, signal_number


class NonFiniteLoss(Exception):
    """The loss or the weights became infinite or NaN."""

    def __init__(self, run: Run, step: int, what: str = "the loss is") -> None:
        saved = run.saved_step()
        good = f"the last good checkpoint is {run.checkpoint} at step {saved}" if saved else "no checkpoint exists yet"
        super().__init__(
            f"{what} not finite at step {step}; {good}. Try a smaller learning rate (train.learning_rate), "
            "train.precision=fp32, or another seed (train.seed)"
        )
        self.step = step


class EvaluationFailed(RuntimeError):
    """An evaluation during training failed; everything trained was saved before."""

    def __init__(self, run: Run, step: int, error: Exception) -> None:
        reason = str(error).strip().partition("\n")[0]
        if is_out_of_memory(error) and not reason.startswith("out of GPU memory"):
            reason = "out of memory"
        super().__init__(
            f"the evaluation at step {step} failed: {reason}; the training is saved in {run.folder}: continue with "
            "--resume, and --set train.evaluate_lengths to shorter ones if memory is short"
        )


def train(
    run: Run,
    *,
    device: str | torch.device = "cpu",
    graph: bool = True,
    ranks: RankGroup = SINGLE_PROCESS,
    on_step: Callable[[int], None] = lambda step: None,
    on_log: OnMetrics = lambda step, values: None,
    on_evaluation: OnMetrics = lambda step, accuracy: None,
) -> None:
    """Train the model of a run, from its checkpoint if it has one, and leave the result in its folder.

    Args:
        run: The run's folder, see :meth:`Run.create` and :meth:`Run.resume`.
        device: The device to train on.
        graph: On a GPU, replay each step as one CUDA graph.
        ranks: The ranks that train together, each of which calls this; a step then takes ``data.batch`` examples per
            rank. Only rank 0 evaluates and writes.
        on_step: Called with the number of every step, on a GPU before it has ended.
        on_log: Called with the step and the values of every line of metrics.jsonl.
        on_evaluation: Called with the step and the accuracies of every evaluation.
    """
    lock = (run.lock or FolderLock(run.folder)) if ranks.is_rank0 else nullcontext()
    run.lock = None
    with lock:
        _train(run, torch.device(device), graph, ranks, on_step, on_log, on_evaluation)


def _train(
    run: Run,
    device: torch.device,
    graph: bool,
    ranks: RankGroup,
    on_step: Callable[[int], None],
    on_log: OnMetrics,
    on_evaluation: OnMetrics,
) -> None:
    precision = run.precision(device)
    settings = replace(run.config.train, precision=precision)
    config = replace(run.config, train=settings)
    if ranks.is_rank0:
        about = {**environment(device), "precision": precision}
        about |= {"processes": ranks.size, "continued_from_step": run.saved_step()}
        record_environment(run.folder, about)
    set_matrix_precision(precision)
    torch.manual_seed(settings.seed)
    objective = make_objective(config, run.folder, device, ranks)
    # Weights are drawn on the CPU: on a GPU the same seed gives others where the number of multiprocessors differs.
    model = objective.build(config.model).to(device)
    resumed = run.checkpoint.exists()
    if settings.start and not resumed:
        Run(Path(settings.start)).load_trained_weights(model, run)
    ranks.seed(settings.seed)
    step = TrainStep(config, model, objective, graph=graph, ranks=ranks)
    done = run.load(step) if resumed else 0
    ranks.check_equal([*model.state_dict().values(), *step.shared_state().values()])
    metrics = MetricsWriter(run.folder, done) if ranks.is_rank0 else None

    def evaluate() -> None:
        """Evaluate on rank 0; the state was saved before, so that a failure loses nothing."""
        if metrics:
            try:
                accuracy = step.evaluate()
            except (RuntimeError, MemoryError, OverflowError) as error:
                raise EvaluationFailed(run, done, error) from error
        if step.best:
            run.save(step)
        if metrics:  # last, so that an evaluation without its line is made again
            metrics.write(done, **{f"accuracy/{name}": value for name, value in accuracy.items()})
            on_evaluation(done, accuracy)

    try:
        with _catch_signals() as received:
            if ranks.all_reduce_max(int(metrics is not None and _lacks_evaluation(metrics.kept, done, settings))):
                evaluate()
            since, logged = time.perf_counter(), done
            while done < settings.steps:
                _make_step(step)
                done += 1
                on_step(done)
                stop = ranks.all_reduce_max(received[0] if received else 0)
                finished = done == settings.steps
                if finished or done % settings.log_every == 0:
                    recent = step.pop_metrics()
                    if recent.first_non_finite is not None:
                        raise NonFiniteLoss(run, recent.first_non_finite)
                    now = time.perf_counter()
                    speed, since, logged = (done - logged) / (now - since), now, done
                    values = {"loss": recent.loss, "accuracy": recent.accuracy}
                    values |= {"learning_rate": float(step.learning_rate), "steps_per_second": speed}
                    if metrics:
                        metrics.write(done, **values)
                    on_log(done, values)
                pause = time.perf_counter()
                due = _is_evaluated(done, settings)
                if due or finished or done % settings.checkpoint_every == 0 or stop:
                    _save_if_finite(run, step)
                if stop and not finished:
                    raise Interrupted(run, done, stop)
                if due:
                    evaluate()
                since += time.perf_counter() - pause
    finally:
        if metrics:
            metrics.close()


def _is_evaluated(step: int, settings: TrainConfig) -> bool:
    """Whether an evaluation follows a step."""
    return bool(settings.evaluate_every) and (step == settings.steps or step % settings.evaluate_every == 0)


def _lacks_evaluation(lines: Sequence[Mapping[str, float]], step: int, settings: TrainConfig) -> bool:
    """Whether a run that continues from a step was stopped between its checkpoint and its evaluation."""
    evaluated = any(line["step"] == step and "loss" not in line for line in lines)
    return step > 0 and _is_evaluated(step, settings) and not evaluated


def _make_step(step: TrainStep) -> None:
    """Make one step; if memory runs out, raise an error that says what a step takes."""
    try:
        return step()
    except torch.OutOfMemoryError:
        pass  # what the attempt held is freed with the error
    data = step.config.data
    raise torch.OutOfMemoryError(
        f"out of GPU memory in a step of data.batch={data.batch} examples of each of data.bins={list(data.bins)}: "
        "choose a smaller batch or shorter bins"
    )


def _save_if_finite(run: Run, step: TrainStep) -> None:
    """Write a checkpoint, unless a loss so far or a weight is not finite."""
    first = int(step.first_non_finite)
    if first >= 0:
        raise NonFiniteLoss(run, first)
    if not all(parameter.isfinite().all() for parameter in step.model.parameters()):
        raise NonFiniteLoss(run, int(step.step), "the weights are")
    run.save(step)


@contextmanager
def _catch_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list that the loop checks; a second signal takes effect at once."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        restore()

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    try:
        before = {each: signal.signal(each, handle) for each in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # only the main thread may handle signals
        yield received
        return
    try:
        yield received
    finally:
        restore()
