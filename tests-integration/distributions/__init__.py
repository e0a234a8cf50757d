"""The five distributions as files: what `hatch run packages` judges, and where it finds it."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = (
    "fencekit-core",
    "fencekit-fifo",
    "fencekit-cache",
    "fencekit-django",
    "fencekit-celery",
)


def wheel_of(dist: str) -> Path:
    """Find the one wheel of a distribution in dist/."""
    (path,) = (ROOT / "dist").glob(f"{dist.replace('-', '_')}-*-py3-none-any.whl")
    return path


def sdist_of(dist: str) -> Path:
    """Find the one sdist of a distribution in dist/."""
    (path,) = (ROOT / "dist").glob(f"{dist.replace('-', '_')}-*.tar.gz")
    return path
