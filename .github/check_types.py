"""Fail when pyright cannot know the type of something that fencekit exports, as installed.

`pyright --verifytypes` also fails for an attribute assigned from an annotated argument without an
annotation of its own. Every checker infers those alike, so they are counted here and let be.
"""

import json
import subprocess
import sys


def main() -> str | None:
    """Return what is wrong, or None."""
    command = ["pyright", "--outputjson", "--ignoreexternal", "--verifytypes", "fencekit"]
    # It exits with 1 for the inferred ones as well.
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    try:
        report = json.loads(ran.stdout)["typeCompleteness"]
    except (ValueError, KeyError):
        return f"pyright gave no report: {ran.stdout}{ran.stderr}"
    counts = report["exportedSymbolCounts"]
    if not counts["withKnownType"]:
        return "pyright found nothing exported: is fencekit installed, with its py.typed?"
    if counts["withUnknownType"]:
        unknown = [
            s
            for s in report["symbols"]
            if s["isExported"] and not (s["isTypeKnown"] or s["isTypeAmbiguous"])
        ]
        return "\n".join(f"unknown type: {symbol['name']}" for symbol in unknown)
    print(f"{counts['withKnownType']} exported symbols of known type,", end=" ")
    print(f"{counts['withAmbiguousType']} inferred, none unknown")
    return None


if __name__ == "__main__":
    sys.exit(main())
