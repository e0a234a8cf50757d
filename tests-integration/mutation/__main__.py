"""Make the mutants, run the tests on each, and say who survived."""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from mutation import lua, python

ROOT = Path(__file__).parents[2]
SURVIVORS = Path(__file__).parent / "survivors.json"
# Seconds for the tests on one mutant: several times what they take on the whole library.
PATIENCE = (60.0, 400.0)
_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--timeout", "20")
_CORE, _FIFO, _CACHE = (f"packages/fencekit-{dist}" for dist in ("core", "fifo", "cache"))


@dataclass(frozen=True)
class Target:
    """What is changed, and which tests must notice: the quick ones, then the rest."""

    files: str
    quick: tuple[str, ...]
    rest: tuple[str, ...]


TARGETS = {
    "core-lua": Target(
        f"{_CORE}/src/fencekit/lua/**/*.lua",
        (f"{_CORE}/tests/lua",),
        (f"{_CORE}/tests/cases", f"{_CORE}/tests/idempotency", f"{_CORE}/tests/drivers"),
    ),
    "core-protocol": Target(
        f"{_CORE}/src/fencekit/protocol/*.py",
        (f"{_CORE}/tests/protocol", f"{_CORE}/tests/lua"),
        (f"{_CORE}/tests/cases", f"{_CORE}/tests/idempotency", f"{_CORE}/tests/drivers"),
    ),
    "fifo-lua": Target(
        f"{_FIFO}/src/fencekit/fifo/lua/**/*.lua",
        (f"{_FIFO}/tests/lua",),
        (f"{_FIFO}/tests/locks", f"{_FIFO}/tests/cases"),
    ),
    "cache-lua": Target(
        f"{_CACHE}/src/fencekit/cache/lua/**/*.lua",
        (f"{_CACHE}/tests/protocol", f"{_CACHE}/tests/drivers"),
        (f"{_CACHE}/tests/cases", f"{_CACHE}/tests/definition"),
    ),
}


@dataclass(frozen=True)
class Mutant:
    """One change. Known by file and texts, for line numbers move."""

    target: str
    file: str
    line: int
    was: str
    now: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.file}: {self.was} => {self.now}"


def made(target: str) -> list[Mutant]:
    """All mutants of a target."""
    found = []
    for path in sorted(ROOT.glob(TARGETS[target].files)):
        make = lua.mutants if path.suffix == ".lua" else python.mutants
        for line, was, now, text in make(path.read_text()):
            file = str(path.relative_to(ROOT))
            found.append(Mutant(target, file, line, was, now, text))
    return found


class Bench:
    """A copy of the sources in which one file at a time is changed."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fk-mutate-"))
        for source in ROOT.glob("packages/*/src"):
            ignored = shutil.ignore_patterns("__pycache__", ".mypy_cache")
            shutil.copytree(source, self.folder / source.relative_to(ROOT), ignore=ignored)

    def is_green(self, targets: list[str]) -> bool:
        """Whether the quick tests pass on the library as it is."""
        tests = {test for target in targets for test in TARGETS[target].quick}
        return self._passes(tuple(sorted(tests)), PATIENCE[1])

    def survives(self, mutant: Mutant, *, quick_only: bool = False) -> bool:
        """Whether no test notices."""
        target = TARGETS[mutant.target]
        path = self.folder / mutant.file
        whole = path.read_text()
        path.write_text(mutant.text)
        try:
            return self._passes(target.quick, PATIENCE[0]) and (
                quick_only or self._passes(target.rest, PATIENCE[1])
            )
        finally:
            path.write_text(whole)

    def _passes(self, tests: tuple[str, ...], patience: float) -> bool:
        sources = [str(path) for path in self.folder.glob("packages/*/src")]
        process = subprocess.Popen(
            [sys.executable, "-B", "-m", "pytest", *_OPTIONS, "-m", "not slow", *tests],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([*sources, str(ROOT / "tests-integration")]),
                "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "hypothesis"),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(patience) == 0
        except subprocess.TimeoutExpired:
            return False  # noticed by waiting in vain
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def run(mutants: list[Mutant], jobs: int, *, quick_only: bool) -> list[Mutant]:
    """Try all; returns those who survived."""
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    survivors: list[Mutant] = []
    count = 0

    def work() -> None:
        nonlocal count
        bench = Bench()
        try:
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                if bench.survives(mutant, quick_only=quick_only):
                    survivors.append(mutant)
                    print(f"SURVIVED {mutant.file}:{mutant.line}: {mutant.was} => {mutant.now}")
                count += 1
                if count % 50 == 0:
                    print(f"… {count} of {len(mutants)}", flush=True)
        finally:
            bench.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return survivors


def main() -> int:
    """Returns the exit status: 1 when somebody survived without a reason on record."""
    parser = argparse.ArgumentParser(prog="mutate", description=__doc__)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
    parser.add_argument("--sample", type=int, help="try so many of each target, taken at random")
    parser.add_argument("--seed", type=int, default=1, help="which")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="only the quick tests of each target")
    parser.add_argument("--again", type=Path, help="try those that survived by this JSON file")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    asked = parser.parse_args()
    bench = Bench()
    targets = asked.target or sorted(TARGETS)
    green = bench.is_green(targets)
    bench.close()
    if not green:
        print("the tests fail on the library as it is")
        return 2
    reasons = {each["mutant"]: each["why"] for each in json.loads(SURVIVORS.read_text())}
    figures = {}
    unexplained = 0
    for target in targets:
        began = time.monotonic()
        everybody = made(target)
        chosen = everybody
        if asked.again:
            before = json.loads(asked.again.read_text()).get(target, {}).get("survived", [])
            names = {f"{each['file']}: {each['was']} => {each['now']}" for each in before}
            chosen = [each for each in everybody if each.name in names]
        if asked.sample and asked.sample < len(chosen):
            chosen = random.Random(asked.seed).sample(chosen, asked.sample)
        survivors = run(chosen, asked.jobs, quick_only=asked.quick)
        known = [each for each in survivors if each.name in reasons]
        unexplained += len(survivors) - len(known)
        figures[target] = {
            "mutants": len(everybody),
            "tried": len(chosen),
            "killed": len(chosen) - len(survivors),
            "survived with a reason": len(known),
            "survived": [
                {**asdict(each), "text": ""} for each in survivors if each.name not in reasons
            ],
            "seconds": round(time.monotonic() - began),
        }
        counts = Counter(Path(each.file).name for each in survivors)
        print(
            f"{target}: {len(chosen)} of {len(everybody)} mutants tried, "
            f"{len(chosen) - len(survivors)} killed, {len(known)} survived with a reason, "
            f"{len(survivors) - len(known)} without; {dict(counts)}"
        )
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
