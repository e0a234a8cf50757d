"""The older, single distribution `fencekit`, which occupies the folder of today's five."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from fencekit.cli.checks import Finding

__all__ = ["OURS", "installation"]

OURS = ("fencekit-core", "fencekit-fifo", "fencekit-cache", "fencekit-django", "fencekit-celery")


def installation() -> Iterator[Finding]:
    """Which of the five are installed, and whether the older one lies among them."""
    found = {name: version for name in OURS if (version := _version(name)) is not None}
    old = _version("fencekit")
    if old is not None:
        yield Finding(
            "installation",
            "error",
            f"the older distribution fencekit {old} is installed beside {', '.join(found)}",
            "both write into one folder: modules of two libraries are imported as one",
            "python -m pip uninstall fencekit; python -m pip install --force-reinstall --no-deps "
            + " ".join(found),
        )
    strays = _strays([distribution(name) for name in found])
    if strays:
        yield Finding(
            "installation",
            "warning",
            f"files in the folder fencekit that no distribution brought: {', '.join(strays)}",
            "left by an older fencekit; they may be imported in the place of today's modules",
            "delete them",
        )
    if old is None and not strays:
        says = ", ".join(f"{name} {version}" for name, version in found.items())
        yield Finding("installation", "ok", says or "a source tree")


def _version(name: str) -> str | None:
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return None


def _strays(installed: list[Distribution]) -> list[str]:
    """Python files in our folder that are not ours; nothing is said of editable installs."""
    core = next((d for d in installed if d.metadata["Name"] == "fencekit-core"), None)
    if core is None:
        return []
    brought = {str(file) for one in installed for file in one.files or ()}
    folder = Path(str(core.locate_file("fencekit")))
    if "fencekit/__init__.py" not in brought:
        return []
    return sorted(
        str(path.relative_to(folder.parent))
        for path in folder.rglob("*.py")
        if path.relative_to(folder.parent).as_posix() not in brought
    )
