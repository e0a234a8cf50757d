"""Make the mutants, run the tests on each, and say who survived."""

from __future__ import annotations

import argparse
import json
import queue
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from mutation import lua, python
from mutation.bench import Bench, Notes

ROOT = Path(__file__).parents[2]
SURVIVORS = Path(__file__).parent / "survivors.json"
_CORE, _FIFO, _CACHE, _CELERY = (
    f"packages/fencekit-{dist}" for dist in ("core", "fifo", "cache", "celery")
)


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
        (f"{_CACHE}/tests/lua", f"{_CACHE}/tests/protocol", f"{_CACHE}/tests/drivers"),
        (f"{_CACHE}/tests/cases", f"{_CACHE}/tests/definition"),
    ),
    "celery-lua": Target(
        f"{_CELERY}/src/fencekit/celery/lua/**/*.lua",
        (f"{_CELERY}/tests/lua", f"{_CELERY}/tests/drivers"),
        (),
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


def outdated(reasons: Iterable[str], everybody: list[Mutant]) -> list[str]:
    """Those on record for these files that are nobody's reasons any more."""
    files, names = {each.file for each in everybody}, {each.name for each in everybody}
    return [one for one in reasons if one.partition(": ")[0] in files and one not in names]


class Trial:
    """All mutants of one target, tried by several benches.

    Attributes:
        survivors: whom no test noticed.
        impatient: those that were given up as hanging.
    """

    def __init__(self, target: str, *, quick_only: bool) -> None:
        self._target = TARGETS[target]
        self._lines = self._target.files.endswith(".py")
        self._quick, self._rest = Notes(), Notes()
        self._quick_only = quick_only
        self.survivors: list[Mutant] = []
        self.impatient: list[Mutant] = []

    def look(self) -> str | None:
        """Run the tests on the library as it is; returns what fails there."""
        bench = Bench()
        try:
            failed = bench.look(self._target.quick, self._quick, lines=self._lines)
            if failed is None and self._target.rest and not self._quick_only:
                failed = bench.look(self._target.rest, self._rest, lines=self._lines)
        finally:
            bench.close()
        return failed

    def run(self, mutants: list[Mutant], jobs: int) -> None:
        """Try these."""
        waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
        for mutant in mutants:
            waiting.put(mutant)
        began = time.monotonic()

        def work() -> None:
            bench = Bench()
            try:
                while True:
                    try:
                        mutant = waiting.get_nowait()
                    except queue.Empty:
                        return
                    self._try(bench, mutant)
                    done = len(mutants) - waiting.qsize()
                    if done % 50 == 0:
                        print(f"… {done} of {len(mutants)} in {time.monotonic() - began:.0f} s")
                    sys.stdout.flush()
            finally:
                bench.close()

        threads = [threading.Thread(target=work) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _try(self, bench: Bench, mutant: Mutant) -> None:
        at = (mutant.file, mutant.line, mutant.text)
        verdict = bench.verdict(*at, self._target.quick, self._quick)
        if verdict.survived and self._target.rest and not self._quick_only:
            verdict = bench.verdict(*at, self._target.rest, self._rest)
        if verdict.survived:
            self.survivors.append(mutant)
            print(f"SURVIVED {mutant.file}:{mutant.line}: {mutant.was} => {mutant.now}")
        elif verdict.by is None:
            self.impatient.append(mutant)
            print(f"HANGS {mutant.file}:{mutant.line}: {mutant.was} => {mutant.now}")


def main() -> int:
    """Returns the exit status: 1 when somebody survived without a reason on record.

    And 2 when nobody was tried: a test fails on the library as it is, or a reason is nobody's.
    """
    parser = argparse.ArgumentParser(prog="mutate", description=__doc__)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
    parser.add_argument("--file", action="append", help="only of files whose path has this in it")
    parser.add_argument("--sample", type=int, help="try so many of each target, taken at random")
    parser.add_argument("--seed", type=int, default=1, help="which")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="only the quick tests of each target")
    parser.add_argument("--again", type=Path, help="try those that survived by this JSON file")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    asked = parser.parse_args()
    targets = asked.target or sorted(TARGETS)
    reasons = {each["mutant"]: each["why"] for each in json.loads(SURVIVORS.read_text())}
    figures = {}
    unexplained = 0
    for target in targets:
        began = time.monotonic()
        everybody = made(target)
        if gone := outdated(reasons, everybody):
            print("\n".join(["No such mutant, so no reason is needed any more:", *gone]))
            return 2
        chosen = everybody
        if asked.file:
            chosen = [each for each in chosen if any(part in each.file for part in asked.file)]
        if asked.again:
            before = json.loads(asked.again.read_text()).get(target, {}).get("survived", [])
            names = {f"{each['file']}: {each['was']} => {each['now']}" for each in before}
            chosen = [each for each in chosen if each.name in names]
        if asked.sample and asked.sample < len(chosen):
            chosen = random.Random(asked.seed).sample(chosen, asked.sample)
        trial = Trial(target, quick_only=asked.quick)
        if failed := trial.look():
            print(f"{target}: {failed} fails on the library as it is")
            return 2
        print(f"{target}: its tests took {time.monotonic() - began:.0f} s", flush=True)
        trial.run(chosen, asked.jobs)
        survivors = trial.survivors
        known = [each for each in survivors if each.name in reasons]
        unexplained += len(survivors) - len(known)
        figures[target] = {
            "mutants": len(everybody),
            "tried": len(chosen),
            "killed": len(chosen) - len(survivors),
            "killed by hanging": len(trial.impatient),
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
