"""``riffle info``: versions, devices, and which kernels would run."""

from __future__ import annotations

from rich.table import Table

from riffle.cli.display import Json, output, print_json


def info(json: Json = False) -> None:
    """Show versions and devices, and which backend would run on each."""
    import torch

    from riffle.environment import device_name, environment
    from riffle.kernels import resolve

    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    devices = [
        {
            "device": name,
            "name": device_name(torch.device(name)),
            "backend": resolve("auto", torch.empty(0, device=name, dtype=torch.bfloat16)),
        }
        for name in names
    ]
    facts = environment(torch.device("cpu"))
    result = {
        "versions": facts["versions"],
        "platform": facts["platform"],
        "threads": facts["threads"],
        "devices": devices,
    }
    if json:
        print_json(result)
        return
    table = Table(show_header=False)
    for package, version in facts["versions"].items():
        table.add_row(package, version)
    table.add_row("platform", f"{facts['platform']}, {facts['threads']} threads")
    for device in devices:
        table.add_row(device["device"], f"{device['name']}: backend {device['backend']}")
    output.print(table)
