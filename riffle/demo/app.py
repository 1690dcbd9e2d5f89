"""The page: its layout, and what each of its controls does. Gradio is an extra: only the server imports this."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from typing import Any

import gradio as gr

from riffle.demo.lengths import LENGTHS, show_lengths
from riffle.demo.reading import PASSAGE, show_reading
from riffle.demo.routes import random_permutation, show_route
from riffle.demo.server import LOGO
from riffle.demo.solve import MAX_SYMBOLS, LoadedRun, RunCatalogue, alphabet, answer, random_input, show_answer
from riffle.demo.svg import tag
from riffle.demo.switches import MAX_CELLS, count_layers, show_switches

SESSIONS = 256
"""Visitors whose state gradio keeps, some 90 KB each; the one not seen for longest is dropped first."""
FIRST_TASK, FIRST_CELLS, FIRST_ROUTE = "sort", 16, "5 2 7 0 6 3 1 4"
"""What the page shows before anything is typed; the input to solve is longer, see :func:`_long_example`."""
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
BUSY: dict[str, Any] = {"show_progress": "minimal", "api_visibility": "private"}
CHOICE: dict[str, Any] = {"show_label": False, "container": False, "min_width": 130, "scale": 1}
"""Options of events without and with a sign of progress, and of a dropdown in a row of buttons."""
HEADER = (
    f'<header class="head">{LOGO}<div><h1>riffle</h1><p>Neural shuffle-exchange networks: they learn an algorithm from '
    'short examples and run it on long ones. Their wiring is a <a href="https://en.wikipedia.org/wiki/Clos_network" '
    'target="_blank" rel="noopener">Beneš network</a>: switches on two wires each, devised for telephone exchanges, '
    "which can connect any inputs to any outputs.</p></div></header>"
)
FOOTER = '<footer class="foot">Everything on this page is computed on the machine that serves it.</footer>'


def build_page(catalogue: RunCatalogue) -> gr.Blocks:
    """The page for these models."""

    def show_choice(visible: bool) -> Any:
        return lambda: (gr.Row(visible=visible), gr.HTML(visible=visible))

    with gr.Blocks(title="riffle", analytics_enabled=False) as page:
        gr.HTML(HEADER)
        with gr.Row(elem_id="choice") as choice:
            first = FIRST_TASK if FIRST_TASK in catalogue.tasks else catalogue.tasks[0]
            task = gr.Dropdown(catalogue.tasks, value=first, label="Task", elem_id="task", scale=1, min_width=200)
            names = catalogue.names(first)
            model = gr.Dropdown(names, value=names[0], label="Trained model", elem_id="model", scale=2, min_width=260)
        trained = catalogue.get(names[0])
        about = gr.HTML(_describe(trained), elem_id="about")
        parts: list[Any] = [about]
        with gr.Tabs(elem_id="tabs"):
            for name, build_tab in (("Solve", _build_solve), ("Length", _build_length), ("Switches", _build_switches)):
                with gr.Tab(name, id=name.lower()) as tab:
                    parts += build_tab(catalogue, model, trained)
                tab.select(show_choice(True), None, [choice, about], queue=False, **QUIET)
            for name, build_other in (("Route", _build_route), ("Read", _build_read)):  # these need no model of a task
                with gr.Tab(name, id=name.lower()) as tab:
                    build_other()
                tab.select(show_choice(False), None, [choice, about], queue=False, **QUIET)
        gr.HTML(FOOTER)

        def choose_task(name: str) -> Any:
            names = catalogue.names(name)
            return gr.Dropdown(choices=names, value=names[0])

        def choose_model(name: str) -> tuple[Any, ...]:
            trained = catalogue.get(name)
            long, example = _long_example(trained), _example(trained)
            layers = count_layers(trained, example)
            return (
                _describe(trained),
                gr.Textbox(value=long, **_hint(trained, MAX_SYMBOLS)),
                show_answer(trained, long),
                show_lengths(trained, trained.trained_length, live=False),
                gr.Textbox(value=example, **_hint(trained, MAX_CELLS)),
                gr.Slider(**_slider(layers)),
                show_switches(trained, example, layers),
            )

        chosen = task.change(choose_task, task, model, queue=False, **QUIET)
        chosen.then(choose_model, model, parts, **QUIET)
        model.input(choose_model, model, parts, **QUIET)

        def solve(model: str, text: str) -> dict:
            try:
                return asdict(answer(catalogue.get(model), text)) | {"model": model}
            except ValueError as error:
                return {"error": str(error)}

        gr.api(solve, api_name="solve")  # for programs: what riffle solve --json prints
    page.state_session_capacity = SESSIONS
    page.queue(max_size=1000, default_concurrency_limit=2, api_open=True)  # two compute, 1000 may wait
    return page


def _build_solve(catalogue: RunCatalogue, model: gr.Dropdown, trained: LoadedRun) -> list[Any]:
    example = _long_example(trained)
    # One line, so that Enter solves; it grows with the text.
    text = gr.Textbox(example, label="Input", elem_id="input", lines=1, max_lines=6, **_hint(trained, MAX_SYMBOLS))
    with gr.Row(elem_classes="actions"):
        go = gr.Button(size="md", value="Solve", variant="primary", elem_id="solve", min_width=130, scale=2)
        another = gr.Button(size="md", value="Random input", elem_id="random", min_width=140, scale=1)
        sizes = [(f"length {n}", n) for n in LENGTHS]
        length = gr.Dropdown(sizes, value=256, label="Length", elem_id="random-length", **CHOICE)
    out = gr.HTML(show_answer(trained, example), elem_id="answer", elem_classes="result")

    def update_answer(name: str, typed: str) -> str:  # not solve: gradio names endpoints by function
        return show_answer(catalogue.get(name), typed)

    def draw_input(name: str, cells: int) -> str:
        return random_input(catalogue.get(name).task, int(cells))

    for event in (go.click, text.submit):
        event(update_answer, [model, text], out, **BUSY)
    another.click(draw_input, [model, length], text, **QUIET).then(update_answer, [model, text], out, **BUSY)
    return [text, out]


def _build_length(catalogue: RunCatalogue, model: gr.Dropdown, trained: LoadedRun) -> list[Any]:
    gr.HTML('<p class="lead">How far does it generalise? Choose a length: the model is tried on fresh examples.</p>')
    with gr.Row(elem_classes="actions"):
        start, last = LENGTHS.index(256), len(LENGTHS) - 1
        place = gr.Slider(
            0, last, value=start, step=1, label="Length: 256", elem_id="length", scale=4, min_width=200, buttons=[]
        )
        go = gr.Button(size="md", value="Measure", variant="primary", elem_id="measure", min_width=120, scale=1)
    out = gr.HTML(show_lengths(trained, LENGTHS[start], live=False), elem_id="curve", elem_classes="result")

    def measure(name: str, index: float) -> str:
        return show_lengths(catalogue.get(name), LENGTHS[int(index)])

    place.change(lambda index: gr.Slider(label=f"Length: {LENGTHS[int(index)]}"), place, place, queue=False, **QUIET)
    for event in (place.release, go.click):
        event(measure, [model, place], out, **BUSY)
    return [out]


def _build_switches(catalogue: RunCatalogue, model: gr.Dropdown, trained: LoadedRun) -> list[Any]:
    example = _example(trained)
    layers = count_layers(trained, example)
    gr.HTML(
        '<p class="lead">Every box is a switch on two cells. Its number is the mean of its update gate: how much it '
        "copies; the rest it computes anew.</p>"
    )
    with gr.Row(elem_classes="actions"):
        hint = _hint(trained, MAX_CELLS)
        text = gr.Textbox(example, label="Input", elem_id="switches-input", scale=3, min_width=220, **hint)
        another = gr.Button(size="md", value="Random input", elem_id="switches-random", min_width=120, scale=1)
    layer = gr.Slider(1, step=1, label="Up to layer", elem_id="layer", buttons=[], **_slider(layers))
    out = gr.HTML(show_switches(trained, example, layers), elem_id="network", elem_classes="result")

    def show_all_layers(name: str, typed: str) -> tuple[Any, str]:
        chosen = catalogue.get(name)
        layers = count_layers(chosen, typed)
        return gr.Slider(**_slider(layers)), show_switches(chosen, typed, layers)

    def show_layers(name: str, typed: str, upto: float) -> str:
        return show_switches(catalogue.get(name), typed, int(upto))

    # The text changes when it is typed, pasted or drawn at random.
    text.change(show_all_layers, [model, text], [layer, out], trigger_mode="always_last", **QUIET)
    another.click(lambda name: random_input(catalogue.get(name).task, FIRST_CELLS), model, text, **QUIET)
    layer.input(show_layers, [model, text, layer], out, trigger_mode="always_last", **QUIET)
    return [text, layer, out]


def _build_route() -> None:
    gr.HTML(
        '<p class="lead">The wiring can carry out every permutation. Type one: message 0 goes to the first number, '
        "message 1 to the second, and so on. Grey switches are crossed.</p>"
    )
    text = gr.Textbox(FIRST_ROUTE, label="Permutation", elem_id="permutation")
    with gr.Row(elem_classes="actions"):
        go = gr.Button(size="md", value="Route", variant="primary", elem_id="route", min_width=130, scale=2)
        another = gr.Button(size="md", value="Random", elem_id="random-route", min_width=130, scale=1)
        sizes = [(f"{n} messages", n) for n in (4, 8, 16, 32)]
        size = gr.Dropdown(sizes, value=8, label="Messages", elem_id="messages", **CHOICE)
    out = gr.HTML(show_route(FIRST_ROUTE), elem_id="routed", elem_classes="result")
    for event in (go.click, text.submit):
        event(show_route, text, out, **QUIET)
    drawn = another.click(lambda messages: random_permutation(int(messages)), size, text, **QUIET)
    drawn.then(show_route, text, out, **QUIET)


def _build_read() -> None:
    gr.HTML(
        '<p class="lead">A reader of novels finds the last word of a passage by pointing at an earlier occurrence of '
        "it. Write a passage whose last word has occurred before, with ___ in its place. The stronger the colour of a "
        "word, the more likely it is. The reader reads the last 127 words.</p>"
    )
    text = gr.Textbox(PASSAGE, label="Passage", elem_id="passage", lines=1, max_lines=10)
    go = gr.Button(size="md", value="Read", variant="primary", elem_id="read", min_width=130)
    out = gr.HTML(show_reading(PASSAGE), elem_id="reading", elem_classes="result")
    for event in (go.click, text.submit):
        event(show_reading, text, out, **BUSY)


def _describe(trained: LoadedRun) -> str:
    config = trained.config.model
    blocks = "1 Beneš block" if config.blocks == 1 else f"{config.blocks} Beneš blocks"
    facts = f"{config.features} feature maps, {blocks}, trained on lengths up to {trained.trained_length}"
    return tag("p", f"<strong>{escape(trained.task.summary)}</strong> <span>{escape(facts)}</span>", class_="about")


def _slider(layers: int) -> dict[str, Any]:
    """Options of the slider over the layers; gradio has no slider of one step, so one layer disables it."""
    return {"maximum": max(2, layers), "value": layers, "interactive": layers > 1}


def _hint(trained: LoadedRun, most: int) -> dict[str, str]:
    syntax = trained.task.syntax
    return {"info": f"{syntax[:1].upper()}{syntax[1:]}. {alphabet(trained.task)}, up to {most} of them."}


def _example(trained: LoadedRun) -> str:
    return random_input(trained.task, FIRST_CELLS, seed=3)  # the same input on every visit


def _long_example(trained: LoadedRun) -> str:
    return random_input(trained.task, min(4 * trained.trained_length, LENGTHS[-1]), seed=3)
