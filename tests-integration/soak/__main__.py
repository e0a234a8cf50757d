"""Sample for so long, and judge the slopes."""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import combinations
from pathlib import Path
from statistics import median

from harness import servers
from harness.children import Child, ChildEnded
from harness.servers import Server
from soak.life import live

# Seconds between samples.
_EVERY = 1.0
# Figure -> what it may grow by at least, whatever its size.
BOUNDS = {
    "client memory": 1024 * 1024,
    "client threads": 0.99,
    "client descriptors": 0.99,
    "server memory": 512 * 1024,
    "server connections": 0.99,
    "server keys": 50,
}
_RELATIVE, _SIZED = 0.03, {"client memory", "server memory", "server keys"}


def theil_sen(times: list[float], values: list[float]) -> float:
    """The median of the slopes of all pairs, per second."""
    pairs = combinations(zip(times, values, strict=True), 2)
    return median((b - a) / (t - s) for (s, a), (t, b) in pairs)


def sample(child: Child, server: Server) -> dict[str, float]:
    """Read all figures."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{child.pid}/status").read_text().splitlines()
    )
    info = server.info()
    return {
        "client memory": float(status["VmRSS"].split()[0]) * 1024,
        "client threads": float(status["Threads"]),
        "client descriptors": float(len(list(Path(f"/proc/{child.pid}/fd").iterdir()))),
        "server memory": float(info["used_memory"]),
        "server connections": float(info["connected_clients"]),
        "server keys": float(info.get("db0", "keys=0").partition("=")[2].partition(",")[0]),
    }


def judge(times: list[float], samples: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """For each figure its median, what it grew by after the warm-up, and the bound of that."""
    rest = [(t, one) for t, one in zip(times, samples, strict=True) if t > times[-1] / 3]
    span = rest[-1][0] - rest[0][0]
    found = {}
    for what, least in BOUNDS.items():
        values = [one[what] for _, one in rest]
        slope = theil_sen([t for t, _ in rest], values)
        middle = median(values)
        bound = max(least, _RELATIVE * middle) if what in _SIZED else least
        found[what] = {"median": middle, "growth": slope * span, "bound": bound}
    return found


def main() -> int:
    """Returns the exit status: 1 when something grew."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--json", type=Path, help="where the figures are written")
    asked = parser.parse_args()
    times: list[float] = []
    samples: list[dict[str, float]] = []
    with servers.start() as server, Child(live, server.url) as child:
        child.expect("done", 60)
        began = time.monotonic()
        commands = int(server.info("stats")["total_commands_processed"])
        while time.monotonic() < began + asked.minutes * 60:
            if not child.alive:
                raise ChildEnded(child.errors)
            times.append(time.monotonic() - began)
            samples.append(sample(child, server))
            time.sleep(_EVERY)
        commands = int(server.info("stats")["total_commands_processed"]) - commands
        if child.errors:
            print(child.errors[-2000:])
    found = judge(times, samples)
    span = times[-1] * 2 / 3
    print(f"{len(samples)} samples over {times[-1]:.0f} s, {commands:,} commands")
    for what, each in found.items():
        verdict = "flat" if each["growth"] <= each["bound"] else "GROWS"
        print(
            f"  {what:20} median {each['median']:14,.0f}   grew {each['growth']:12,.1f} in "
            f"{span:.0f} s, bound {each['bound']:12,.1f}   {verdict}"
        )
    if asked.json:
        course = [(round(t), one) for t, one in zip(times, samples, strict=True)][::10]
        figures = {
            "seconds": times[-1],
            "commands": commands,
            "figures": found,
            "course": course,
        }
        asked.json.write_text(json.dumps(figures, indent=1) + "\n")
    return int(any(each["growth"] > each["bound"] for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
