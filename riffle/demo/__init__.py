"""The web page of ``riffle demo``: solve, measure, look at the switches, route. Only this folder needs gradio."""

from __future__ import annotations
