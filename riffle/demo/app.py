"""The page: what stands where, and what happens when something is pressed.

Gradio is an extra, so it is imported where it is used.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from riffle.demo.lengths import LENGTHS, show_lengths
from riffle.demo.routes import random_permutation, show_route
from riffle.demo.server import MARK
from riffle.demo.solve import MOST, LoadedRun, RunCatalogue, answer, random_input, show_answer
from riffle.demo.svg import escape, tag
from riffle.demo.switches import MOST as MOST_DRAWN
from riffle.demo.switches import layers_of, show_switches
from riffle.tasks import get_task

if TYPE_CHECKING:
    import gradio as gr


AT_ONCE = 2
"""Requests that compute at the same time; the others wait in the queue."""
WAITING = 1000
"""Requests that may wait; one more is refused."""
SESSIONS = 256
"""Visitors that gradio remembers, some 90 KB each; the one not seen for longest is forgotten first."""
FIRST_TASK, FIRST_LENGTH, FIRST_ROUTE = "sort", 16, "5 2 7 0 6 3 1 4"
"""What the page shows before anything is typed."""
HEADER = (
    f'<header class="head">{MARK}<div><h1>riffle</h1><p>Neural shuffle-exchange networks: they learn an algorithm from '
    "short examples and run it on long ones.</p></div></header>"
)
FOOTER = '<footer class="foot">Everything on this page is computed on the machine that serves it.</footer>'


def build(catalogue: RunCatalogue) -> gr.Blocks:
    """The page for these models."""
    import gradio as gr

    with gr.Blocks(title="riffle", analytics_enabled=False) as page:
        gr.HTML(HEADER)
        with gr.Row(elem_id="choice") as choice:
            first = FIRST_TASK if FIRST_TASK in catalogue.tasks else catalogue.tasks[0]
            task = gr.Dropdown(catalogue.tasks, value=first, label="Task", elem_id="task", scale=1, min_width=200)
            names = catalogue.names(first)
            model = gr.Dropdown(names, value=names[0], label="Trained model", elem_id="model", scale=2, min_width=260)
        about = gr.HTML(_describe(catalogue, names[0]), elem_id="about")
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Solve", id="solve") as solve_tab:
                solve_parts = _solve(catalogue, model)
            with gr.Tab("Length", id="length") as length_tab:
                length_parts = _length(catalogue, model)
            with gr.Tab("Switches", id="switches") as switches_tab:
                switches_parts = _switches(catalogue, model)
            with gr.Tab("Route", id="route") as route_tab:
                _route()
        gr.HTML(FOOTER)
        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        for tab in (solve_tab, length_tab, switches_tab):
            tab.select(
                lambda: (gr.Row(visible=True), gr.HTML(visible=True)), None, [choice, about], queue=False, **quiet
            )
        # A permutation is routed by hand: no model has a part in it.
        route_tab.select(
            lambda: (gr.Row(visible=False), gr.HTML(visible=False)), None, [choice, about], queue=False, **quiet
        )

        def choose_task(name: str) -> Any:
            names = catalogue.names(name)
            return gr.Dropdown(choices=names, value=names[0])

        parts = [about, *solve_parts, *length_parts, *switches_parts]
        task.change(choose_task, task, model, queue=False, **quiet).then(
            lambda name: _start(catalogue, name), model, parts, **quiet
        )
        model.input(lambda name: _start(catalogue, name), model, parts, **quiet)
        _api(catalogue)
    page.state_session_capacity = SESSIONS
    page.queue(max_size=WAITING, default_concurrency_limit=AT_ONCE, api_open=True)
    return page


def _start(catalogue: RunCatalogue, name: str) -> tuple[Any, ...]:
    """What all tabs show when a model has just been chosen."""
    import gradio as gr

    trained = catalogue.get(name)
    example = _example(trained)
    layers = layers_of(trained, example)
    return (
        _describe(catalogue, name),
        gr.Textbox(value=example, **_hint(trained.config.task)),
        show_answer(trained, example),
        show_lengths(trained, trained.trained_length, live=False),
        example,
        gr.Slider(**_steps(layers)),
        show_switches(trained, example, layers),
    )


def _solve(catalogue: RunCatalogue, model: gr.Dropdown) -> list[Any]:
    import gradio as gr

    trained = catalogue.get(str(model.value))
    task = get_task(trained.config.task)
    example = _example(trained)
    text = gr.Textbox(example, label="Input", elem_id="input", lines=2, max_lines=6, **_hint(task.name))
    with gr.Row(elem_classes="actions"):
        go = gr.Button(size="md", value="Solve", variant="primary", elem_id="solve", min_width=130, scale=2)
        another = gr.Button(size="md", value="Random input", elem_id="random", min_width=140, scale=1)
        length = gr.Dropdown(
            [(f"length {n}", n) for n in LENGTHS],
            value=16,
            elem_id="random-length",
            show_label=False,
            container=False,
            min_width=130,
            scale=1,
        )
    out = gr.HTML(show_answer(trained, example), elem_id="answer", elem_classes="result")

    def solved(name: str, typed: str) -> str:
        return show_answer(catalogue.get(name), typed)

    def drawn(name: str, cells: int) -> str:
        chosen = get_task(catalogue.get(name).config.task)
        return random_input(chosen, int(cells), generator=_generator())

    for event in (go.click, text.submit):
        event(solved, [model, text], out, show_progress="minimal", api_visibility="private")
    another.click(drawn, [model, length], text, show_progress="hidden", api_visibility="private").then(
        solved, [model, text], out, show_progress="minimal", api_visibility="private"
    )
    return [text, out]


def _length(catalogue: RunCatalogue, model: gr.Dropdown) -> list[Any]:
    import gradio as gr

    trained = catalogue.get(str(model.value))
    gr.HTML(
        '<p class="lead">How far does it generalise? Choose a length: the model is tried on fresh examples of it.</p>'
    )
    with gr.Row(elem_classes="actions"):
        power = gr.Slider(
            3, 12, value=8, step=1, label="Length: 256", elem_id="length", scale=4, min_width=200, buttons=[]
        )
        go = gr.Button(size="md", value="Measure", variant="primary", elem_id="measure", min_width=120, scale=1)
    out = gr.HTML(show_lengths(trained, 2**8, live=False), elem_id="curve", elem_classes="result")

    def measured(name: str, k: float) -> str:
        return show_lengths(catalogue.get(name), 2 ** int(k))

    power.change(
        lambda k: gr.Slider(label=f"Length: {2 ** int(k)}"),
        power,
        power,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
    for event in (power.release, go.click):
        event(measured, [model, power], out, show_progress="minimal", api_visibility="private")
    return [out]


def _switches(catalogue: RunCatalogue, model: gr.Dropdown) -> list[Any]:
    import gradio as gr

    trained = catalogue.get(str(model.value))
    example = _example(trained)
    layers = layers_of(trained, example)
    gr.HTML(
        '<p class="lead">Every box is a switch on two cells. Its number is the mean of its update gate: how much it '
        f"copies; the rest it computes anew. Up to {MOST_DRAWN} cells.</p>"
    )
    with gr.Row(elem_classes="actions"):
        text = gr.Textbox(example, label="Input", elem_id="switches-input", scale=3, min_width=220)
        another = gr.Button(size="md", value="Random input", elem_id="switches-random", min_width=120, scale=1)
    layer = gr.Slider(1, step=1, label="Up to layer", elem_id="layer", buttons=[], **_steps(layers))
    out = gr.HTML(show_switches(trained, example, layers), elem_id="network", elem_classes="result")

    def redrawn(name: str, typed: str) -> tuple[Any, str]:
        chosen = catalogue.get(name)
        layers = layers_of(chosen, typed)
        return gr.Slider(**_steps(layers)), show_switches(chosen, typed, layers)

    def drawn(name: str) -> str:
        return random_input(get_task(catalogue.get(name).config.task), 16, generator=_generator())

    def stepped(name: str, typed: str, upto: float) -> str:
        return show_switches(catalogue.get(name), typed, int(upto))

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    text.change(redrawn, [model, text], [layer, out], trigger_mode="always_last", **quiet)  # typed, pasted or drawn
    another.click(drawn, model, text, **quiet)
    layer.input(stepped, [model, text, layer], out, trigger_mode="always_last", **quiet)
    return [text, layer, out]


def _route() -> None:
    import gradio as gr

    gr.HTML(
        '<p class="lead">The wiring can carry out every permutation. Type one: message 0 goes to the first number, '
        "message 1 to the second, and so on. Grey switches are crossed.</p>"
    )
    text = gr.Textbox(FIRST_ROUTE, label="Permutation", elem_id="permutation")
    with gr.Row(elem_classes="actions"):
        go = gr.Button(size="md", value="Route", variant="primary", elem_id="route", min_width=130, scale=2)
        another = gr.Button(size="md", value="Random", elem_id="random-route", min_width=130, scale=1)
        size = gr.Dropdown(
            [(f"{n} messages", n) for n in (4, 8, 16, 32)],
            value=8,
            elem_id="messages",
            show_label=False,
            container=False,
            min_width=130,
            scale=1,
        )
    out = gr.HTML(show_route(FIRST_ROUTE), elem_id="routed", elem_classes="result")
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    for event in (go.click, text.submit):
        event(show_route, text, out, **quiet)
    another.click(lambda messages: random_permutation(int(messages)), size, text, **quiet).then(
        show_route, text, out, **quiet
    )


def _api(catalogue: RunCatalogue) -> None:
    """``/solve`` for programs: what ``riffle solve --json`` prints."""
    import gradio as gr

    def solve(model: str, text: str) -> dict:
        try:
            return asdict(answer(catalogue.get(model), text))
        except (ValueError, OSError) as error:
            return {"error": str(error)}

    gr.api(solve, api_name="solve")


def _describe(catalogue: RunCatalogue, name: str) -> str:
    trained = catalogue.get(name)
    task, config = get_task(trained.config.task), trained.config.model
    blocks = "1 Beneš block" if config.blocks == 1 else f"{config.blocks} Beneš blocks"
    facts = f"{config.features} feature maps, {blocks}, trained on lengths up to {trained.trained_length}"
    return tag("p", f"<strong>{escape(task.summary)}</strong> <span>{escape(facts)}</span>", class_="about")


def _steps(layers: int) -> dict[str, Any]:
    """A slider over the layers; one layer leaves nothing to choose, and gradio no slider of one step."""
    return {"maximum": max(2, layers), "value": layers, "interactive": layers > 1}


def _example(trained: LoadedRun) -> str:
    task = get_task(trained.config.task)
    return random_input(task, FIRST_LENGTH, generator=torch.Generator().manual_seed(3))


def _hint(task: str) -> dict[str, str]:
    return {"info": f"{get_task(task).syntax[:1].upper()}{get_task(task).syntax[1:]}. Up to {MOST} symbols."}


def _generator() -> torch.Generator:
    generator = torch.Generator()
    generator.seed()
    return generator
