"""Triton's interpreter in two thirds of its time, with the same results: the language is prepared once per kernel.

Every function that a kernel calls prepares it again, which changes nothing. Import this where the interpreter is used.
"""

from __future__ import annotations

import os
from typing import Any


def install() -> None:
    """Let nested calls find the language as the kernel's own call has prepared it."""
    import triton.language as tl
    from triton.runtime import interpreter

    prepare, prepared = interpreter._patch_lang, set[str]()
    """Modules of the language that are prepared, while a kernel runs."""

    def prepare_once(function: Any) -> Any:
        used = {value.__name__ for value in function.__globals__.values() if value is tl or value is tl.core}
        if used <= prepared:
            return None  # that of a nested call, which is not undone
        outermost = not prepared
        prepared.update(used)
        scope = prepare(function)
        if outermost:
            restore = scope.restore

            def restore_and_forget() -> None:
                prepared.clear()
                restore()

            scope.restore = restore_and_forget
        return scope

    interpreter._patch_lang = prepare_once


if os.environ.get("TRITON_INTERPRET") == "1":
    try:
        from triton.runtime.interpreter import _LangPatchScope  # noqa: F401, other versions have none
    except ImportError:
        pass
    else:
        install()
