"""Colours and fonts: the system's own, so that nothing is fetched from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    import gradio as gr

STYLE = Path(__file__).parent / "style.css"
MARK = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 40">'
    '<g fill="none" stroke-width="4" stroke-linecap="round">'
    '<path d="M4 6H60" stroke="#6d7cff"/><path d="M4 15C30 15 34 25 60 25" stroke="#2fb5a0"/>'
    '<path d="M4 25C30 25 34 15 60 15" stroke="#f2a33a"/><path d="M4 34H60" stroke="#e2557a"/></g></svg>'
)
ICON = f'<link rel="icon" type="image/svg+xml" href="data:image/svg+xml,{quote(MARK)}">'


def theme() -> gr.themes.Base:
    """Calm, with one accent; light and dark."""
    import gradio as gr

    return gr.themes.Base(
        primary_hue=gr.themes.colors.indigo,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_lg,
        font=("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica", "Arial", "sans-serif"),
        font_mono=("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"),
    ).set(
        body_background_fill="#f5f6fa",
        body_background_fill_dark="#0e1220",
        block_background_fill="white",
        block_background_fill_dark="#171d2e",
        block_border_color_dark="#2a3247",
        input_background_fill="white",
        input_background_fill_dark="#10162a",
        input_border_color="#cdd3e0",
        input_border_color_dark="#33405e",
        button_primary_background_fill="#4453c8",
        button_primary_background_fill_hover="#3845ad",
        button_primary_background_fill_dark="#5b6ae0",
        button_primary_background_fill_hover_dark="#6d7cf0",
        input_border_width="1px",
        button_border_width="1px",
        button_border_width_dark="1px",
        button_primary_border_color="#4453c8",
        button_primary_border_color_dark="#5b6ae0",
        button_primary_text_color="white",
        button_primary_text_color_dark="white",
        button_secondary_background_fill="white",
        button_secondary_background_fill_dark="#1f2740",
        button_secondary_border_color="#cdd3e0",
        button_secondary_border_color_dark="#33405e",
    )
