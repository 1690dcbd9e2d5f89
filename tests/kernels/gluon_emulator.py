"""Run kernels that are written in Gluon on a CPU: their own code, with Python's threads for groups of warps.

What it checks: addresses, the order of tiles, which place of a ring is filled, awaited and left when, how many bytes a
barrier waits for. What is asynchronous happens as late as the code allows: a product reads shared memory when it is
waited for, a copy to global memory when the store is. So a place that is left too early gives wrong numbers, and one
that is never left a :class:`Deadlock`. Programs run one after the other, or where all are launched at once side by
side; then others see what a group has stored when the group says so. What it does not check: layouts, registers, the
limits of the copy engine, and races between warps of one group.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

PATIENCE = 20.0
"""Seconds after which a wait is a deadlock."""
_context: contextvars.ContextVar[Any] = contextvars.ContextVar("program")


class Deadlock(RuntimeError):
    """A barrier that nobody completes."""


class Pointer:
    """An address, or a block of them, in a flat tensor."""

    def __init__(self, tensor: Tensor, offset: Tensor | int = 0) -> None:
        self.tensor, self.offset = tensor, offset
        self.dtype = SimpleNamespace(element_ty=tensor.dtype)

    def __add__(self, offset: Tensor | int) -> Pointer:
        return Pointer(self.tensor, self.offset + offset)


class Descriptor:
    """A matrix that is copied by blocks."""

    def __init__(self, tensor: Tensor, rows: int, columns: int, block: tuple[int, int]) -> None:
        self.matrix, self.block, self.layout = tensor.view(rows, columns), block, None
        self.dtype = tensor.dtype
        self.block_type = SimpleNamespace(nbytes=block[0] * block[1] * tensor.element_size(), shape=block)

    def read(self, row: int, column: int) -> Tensor:
        """A block, with zeros for rows that do not exist."""
        assert column + self.block[1] <= self.matrix.shape[1], "columns that do not exist"
        block = torch.zeros(self.block, dtype=self.dtype)
        part = self.matrix[row : row + self.block[0], column : column + self.block[1]]
        block[: part.shape[0]] = part
        return block

    def write(self, row: int, column: int, block: Tensor) -> None:
        """The same the other way."""
        assert tuple(block.shape) == self.block
        assert column + self.block[1] <= self.matrix.shape[1], "columns that do not exist"
        part = self.matrix[row : row + self.block[0], column : column + self.block[1]]
        part.copy_(block[: part.shape[0]])


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all bytes have come."""

    def __init__(self, condition: threading.Condition) -> None:
        self.condition, self.count, self.pending, self.bytes, self.phase = condition, 0, 0, 0, 0

    def start(self, count: int) -> None:
        self.count = self.pending = count

    def advance(self, arrived: int, added: int) -> None:
        with self.condition:
            self.pending -= arrived
            self.bytes += added
            assert self.pending >= 0, "more arrivals than the barrier counts"
            if self.pending == 0 and self.bytes == 0:
                self.phase += 1
                self.pending = self.count
                self.condition.notify_all()

    def wait(self, parity: int) -> None:
        with self.condition:
            if not self.condition.wait_for(lambda: self.phase & 1 != parity or _program().failed, PATIENCE):
                raise Deadlock(f"nobody completes a phase of parity {parity}")
            if _program().failed:
                raise Deadlock("another group has failed")


class Shared:
    """A block of shared memory."""

    def __init__(self, data: Tensor | list[Barrier], flat: Tensor | None = None) -> None:
        self.data: Any = data
        self.dtype = data.dtype if isinstance(data, Tensor) else torch.int64

    def index(self, number: Tensor | int) -> Any:
        assert 0 <= int(number) < len(self.data), "a place that does not exist"
        part = self.data[int(number)]
        return part if isinstance(part, Barrier) else Shared(part)

    def slice(self, start: int, length: int, dim: int) -> Shared:
        return Shared(self.data.narrow(dim, start, length))

    def permute(self, order: tuple[int, int]) -> Shared:
        return Shared(self.data.permute(order))

    def load(self, layout: None) -> Tensor:
        return self.data.clone()

    def store(self, block: Tensor) -> None:
        self.data.copy_(block)

    def _reinterpret(self, dtype: torch.dtype, shape: list[int], layout: None) -> Shared:
        count = shape[0] * shape[1]
        return Shared(self.data.view(-1)[:count].view(shape))


class Product:
    """A product that has been started."""

    def __init__(self, compute: Callable[[], Tensor]) -> None:
        self.compute, self.result = compute, None

    def finish(self) -> None:
        self.result = self.compute()


class Grid:
    """Programs that run side by side."""

    def __init__(self) -> None:
        self.lock, self.failed = threading.Lock(), False


class Program:
    """One program of a grid; ``grid`` where all run side by side."""

    def __init__(self, number: int, programs: int, grid: Grid | None = None) -> None:
        self.number, self.programs, self.failed, self.grid = number, programs, False, grid
        self.condition = threading.Condition()
        self.group = threading.local()

    def queue(self, name: str) -> list[Any]:
        """What the group has started and not waited for."""
        if not hasattr(self.group, name):
            setattr(self.group, name, [])
        return getattr(self.group, name)


def _program() -> Program:
    return _context.get()


def _value(x: Any) -> Any:
    return getattr(x, "value", x) if type(x).__name__ == "constexpr" else x


# The language


def _range(*bounds: Any) -> Iterator[Tensor]:
    return (torch.tensor(number) for number in range(*(int(bound) for bound in bounds)))


def _load(
    pointer: Pointer, mask: Tensor | None = None, other: float = 0.0, cache_modifier: str | None = None
) -> Tensor:
    offset = pointer.offset if isinstance(pointer.offset, Tensor) else torch.tensor(pointer.offset)
    if mask is None:
        return pointer.tensor[offset]
    inside = torch.broadcast_to(mask, offset.shape)
    return torch.where(
        inside, pointer.tensor[torch.where(inside, offset, 0)], torch.tensor(other).to(pointer.tensor.dtype)
    )


def _store(pointer: Pointer, value: Tensor, mask: Tensor | None = None) -> None:
    assert value.dtype == pointer.tensor.dtype
    offset = pointer.offset
    value, inside = torch.broadcast_to(value, offset.shape), torch.ones(offset.shape, dtype=torch.bool)
    if mask is not None:
        inside = torch.broadcast_to(mask, offset.shape)
    targets, values = offset[inside], value[inside]

    def write() -> None:
        pointer.tensor[targets] = values

    if _program().grid is None:
        write()
    else:
        _program().queue("stores").append(write)


def _fence() -> None:
    queue = _program().queue("stores")
    while queue:
        queue.pop(0)()


def _atomic_add(pointer: Pointer, value: int, sem: str, scope: str) -> None:
    grid = _program().grid
    assert grid is not None, "programs that wait for each other are launched at once"
    with grid.lock:
        pointer.tensor[pointer.offset] += value


def _count(pointer: Pointer) -> int:
    """A counter; who reads the same number for long waits for nothing."""
    program, number = _program(), int(pointer.tensor[pointer.offset])
    key, state = (int(pointer.offset), number), vars(program.group)
    if state.get("count") != key:
        program.group.count, program.group.since = key, time.monotonic()
    elif program.grid.failed or time.monotonic() > state["since"] + PATIENCE:
        raise Deadlock(f"a counter stays at {number}")
    else:
        time.sleep(0.001)
    return number


def _allocate(dtype: torch.dtype, shape: list[int], layout: None) -> Shared:
    shape = [int(size) for size in shape]
    if dtype == torch.int64:
        return Shared([Barrier(_program().condition) for _ in range(shape[0])])
    return Shared(torch.full(shape, float("nan"), dtype=dtype))


def _specialize(functions: list[tuple[Callable[..., Any], tuple[Any, ...]]], warps: Any, registers: Any) -> None:
    program, errors = _program(), []

    def run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        _context.set(program)
        torch.set_grad_enabled(False)  # of this thread alone
        try:
            function(*arguments)
            assert not program.queue("products"), "a product that nobody waits for"
            assert not program.queue("copies"), "a copy that nobody waits for"
            assert not program.queue("stores"), "a store that nobody is told of"
        except BaseException as error:
            errors.append(error)
            program.failed = True
            if program.grid is not None:
                program.grid.failed = True
            with program.condition:
                program.condition.notify_all()

    _run_threads([threading.Thread(target=run, args=pair) for pair in functions], errors)


def _run_threads(threads: Sequence[threading.Thread], errors: Sequence[BaseException]) -> None:
    """Until all have ended; then raise one of the errors that they left, rather the cause than who waited in vain."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, Deadlock)), errors[0])


def _multiply(left: Any, right: Shared, sums: Any, *, use_acc: Any, is_async: bool) -> Product:
    def compute() -> Tensor:
        a = left.data if isinstance(left, Shared) else left
        before = sums.result if isinstance(sums, Product) else sums
        product = a.float() @ right.data.float()
        return before + product if bool(use_acc) else product

    started = Product(compute)
    _program().queue("products").append(started)
    return started


def _wait_products(outstanding: int, deps: Any) -> Any:
    queue = _program().queue("products")
    while len(queue) > outstanding:
        queue.pop(0).finish()
    # One that still runs is an operand of the next, and nothing else can read it.
    results = [dep if dep.result is None else dep.result for dep in deps]
    return results[0] if len(results) == 1 else tuple(results)


def _copy_in(descriptor: Descriptor, place: list[Any], barrier: Barrier, target: Shared) -> None:
    target.data.copy_(descriptor.read(*(int(number) for number in place)))
    barrier.advance(0, -descriptor.block_type.nbytes)


def _copy_out(descriptor: Descriptor, place: list[Any], source: Shared) -> None:
    row, column = (int(number) for number in place)
    _program().queue("copies").append(lambda: descriptor.write(row, column, source.data))


def _wait_copies(outstanding: int) -> None:
    queue = _program().queue("copies")
    while len(queue) > outstanding:
        queue.pop(0)()


class _Block(Tensor):
    """A block that has a type with a layout, and that nothing changes in place."""

    type = SimpleNamespace(layout=None)  # type: ignore[assignment]

    def __iadd__(self, other: Tensor) -> Tensor:  # type: ignore[misc]
        return self + other


def _sum(x: Tensor, axis: int) -> Tensor:
    return x.sum(axis).as_subclass(_Block)


def _reset(code: Any, constraints: str, blocks: list[Tensor], dtype: torch.dtype, is_pure: bool, pack: int) -> Tensor:
    total, half_bias, read = blocks
    t = torch.tanh(0.5 * total + half_bias).to(dtype)
    read = 0.5 * read if "mul.rn" in code else read
    return (t.float() * read.float() + read.float()).to(dtype)


def _random_scale_of_rows(
    p_seed: Pointer, first: Any, rows: Tensor, i: Any, columns: Tensor, starts: Any, rates: Any, d: int, dropout: Any
) -> Tensor:
    """Dropout of another kind than the kernels': what they draw is tested on a GPU."""
    kept = ((int(first) + rows[:, None]) * 7 + int(i) * 3 + columns[None, :]) % 4 > 0
    return torch.where(kept, 1.0 / (1.0 - rates[0]), 0.0)


def _where(condition: Any, a: Any, b: Any) -> Any:
    return torch.where(torch.as_tensor(condition), torch.as_tensor(a), torch.as_tensor(b))


def _minimum(a: Any, b: Any) -> Tensor:
    return torch.minimum(torch.as_tensor(a), torch.as_tensor(b))


_mbarrier = SimpleNamespace(
    init=lambda barrier, count: barrier.start(int(count)),
    expect=lambda barrier, size: barrier.advance(1, int(size)),
    wait=lambda barrier, parity: barrier.wait(int(parity)),
    arrive=lambda barrier, count: barrier.advance(int(count), 0),
    MBarrierLayout=lambda: None,
)
_tma = SimpleNamespace(
    async_copy_global_to_shared=_copy_in, async_copy_shared_to_global=_copy_out, store_wait=_wait_copies
)
_hopper = SimpleNamespace(
    mbarrier=_mbarrier, tma=_tma, warpgroup_mma=_multiply, warpgroup_mma_wait=_wait_products,
    fence_async_shared=lambda: None,
)  # fmt: skip
_language = SimpleNamespace(
    constexpr=_value, float32=torch.float32, bfloat16=torch.bfloat16, float16=torch.float16, int32=torch.int32,
    int64=torch.int64, allocate_shared_memory=_allocate, static_range=range, static_assert=lambda *checks: None,
    program_id=lambda axis: torch.tensor(_program().number),
    num_programs=lambda axis: torch.tensor(_program().programs),
    arange=lambda start, end, layout=None: torch.arange(start, end), load=_load, store=_store,
    cdiv=lambda a, b: -(-a // b), sum=_sum, where=_where, join=lambda a, b: torch.stack((a, b), dim=-1),
    zeros=lambda shape, dtype, layout: torch.zeros([int(size) for size in shape], dtype=dtype),
    full=lambda shape, value, dtype, layout: torch.full([int(size) for size in shape], value, dtype=dtype),
    minimum=_minimum, convert_layout=lambda block, layout, assert_trivial=False: block, warp_specialize=_specialize,
    inline_asm_elementwise=_reset, SliceLayout=lambda *a: None, BlockedLayout=lambda *a: None,
    SwizzledSharedLayout=lambda *a: None, split=lambda block: block.unbind(-1), atomic_add=_atomic_add,
    thread_barrier=lambda: None,
)  # fmt: skip
_LAYOUTS = ("_sums", "_operand", "_lines", "_spread")


class Emulated:
    """The kernels of a file of Gluon, to be run on a CPU."""

    def __init__(self, *modules: ModuleType) -> None:
        self.names: dict[str, Any] = {}
        for module in modules:
            for name, value in vars(module).items():
                function = getattr(value, "fn", None)
                if isinstance(function, FunctionType):
                    code = function.__code__
                    self.names[name] = FunctionType(code, self.names, name, function.__defaults__, function.__closure__)
                elif name.isupper():
                    self.names[name] = _value(value)
        self.names |= {name: lambda *arguments: None for name in _LAYOUTS}
        self.names |= {"gl": _language, "tl": _language, "hopper": _hopper, "mbarrier": _mbarrier, "tma": _tma}
        self.names |= {
            "range": _range,
            "tanh": lambda x, fast: torch.tanh(x),
            "random_scale_of_rows": _random_scale_of_rows,
        }
        self.names |= {"follow": lambda pdl: None}
        self.names |= {"_count": _count, "_fence": _fence}

    def run(self, kernel: str, programs: int, *arguments: Any, together: bool = False) -> None:
        """All programs of a grid, one after the other or side by side."""
        if together:
            self._run_together(kernel, programs, *arguments)
            return
        for number in range(programs):
            _context.set(Program(number, programs))
            self.names[kernel](*arguments)

    def _run_together(self, kernel: str, programs: int, *arguments: Any) -> None:
        grid, errors = Grid(), list[BaseException]()

        def run(number: int) -> None:
            _context.set(Program(number, programs, grid))
            torch.set_grad_enabled(False)  # of this thread alone
            try:
                self.names[kernel](*arguments)
            except BaseException as error:
                errors.append(error)
                grid.failed = True

        _run_threads([threading.Thread(target=run, args=(number,)) for number in range(programs)], errors)
