"""The web page of ``riffle demo``: solve, measure, look at the switches, route. Only this package needs gradio."""

from __future__ import annotations
