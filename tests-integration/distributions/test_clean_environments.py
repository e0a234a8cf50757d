"""Each distribution alone, in a virtual environment made for it: `hatch run packages`.

Needs the package index, hence no part of `hatch run test`. Core comes from dist/ too, never from an
index. Shown red once each: a satellite that imports pydantic without requiring it, an extra without
its requirement, a module of core that imports opentelemetry, a satellite with a
`fencekit/__init__.py` (uninstalling it broke core).
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distributions import DISTRIBUTIONS, sdist_of, wheel_of

FORMS = {"wheel": wheel_of, "sdist": sdist_of}
# What each says that it needs, beside its extras.
NEEDS = {
    "fencekit-core": {"redis"},
    "fencekit-fifo": {"fencekit-core"},
    "fencekit-cache": {"fencekit-core", "pydantic"},
    "fencekit-django": {"fencekit-core", "django"},
    "fencekit-celery": {"fencekit-core", "celery"},
}
EXTRAS = {"cli": {"typer", "rich"}, "otel": {"opentelemetry-api"}}
# Without its extra a module may be missing what it is for, and nothing else.
FOR_AN_EXTRA = {"fencekit.otel": "opentelemetry", "fencekit.cli": "typer rich click"}

# Runs in the clean environment: standard library and what was installed, nothing of ours.
LOOK = """
import importlib.metadata as metadata, importlib, json, pkgutil, re, sys

def key(name):
    return re.sub(r"[-_.]+", "-", name).lower()

def direct(name):
    found = set()
    for need in metadata.requires(name) or []:
        if "extra ==" not in need:
            found.add(key(re.match(r"[\\w.-]+", need)[0]))
    return sorted(found)

if DJANGO:
    import django
    from django.conf import settings
    settings.configure(
        INSTALLED_APPS=[
            "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
            "django.contrib.messages", "django.contrib.sessions", "fencekit.django",
        ],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        FENCEKIT={"REDIS_URL": "redis://127.0.0.1:1/0"},
    )
    django.setup()

top = importlib.import_module(PACKAGE)
imported, refused = [PACKAGE], {}
def walk(package):
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if found.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(found.name)
        except ImportError as error:
            refused[found.name] = str(error)
            continue
        imported.append(found.name)
        if found.ispkg:
            walk(module)
walk(top)
print(json.dumps({
    "installed": sorted(key(d.metadata["Name"]) for d in metadata.distributions()),
    "direct": direct(DIST),
    "imported": imported,
    "refused": refused,
    "where": list(top.__path__),
}))
"""


def run(*command: str | Path) -> str:
    """Return what the command printed; a failure shows what it complained of."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


class Environment:
    """A virtual environment with nothing in it, not even pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run("uv", "venv", "--quiet", "--python", sys.executable, folder)
        self.python = folder / "bin" / "python"

    def install(self, *what: str | Path) -> None:
        run("uv", "pip", "install", "--quiet", "--python", self.python, *what)

    def uninstall(self, name: str) -> None:
        run("uv", "pip", "uninstall", "--quiet", "--python", self.python, name)

    def look(self, dist: str) -> dict[str, Any]:
        """Import every module of a distribution, and say what is there."""
        settings = {
            "DIST": dist,
            "PACKAGE": package_of(dist),
            "DJANGO": dist == "fencekit-django",
        }
        story = "".join(f"{name} = {value!r}\n" for name, value in settings.items()) + LOOK
        seen: dict[str, Any] = json.loads(run(self.python, "-I", "-c", story))
        return seen

    def imports(self, module: str) -> bool:
        ran = subprocess.run(
            [self.python, "-I", "-c", f"import {module}"], capture_output=True, check=False
        )
        return ran.returncode == 0


def package_of(dist: str) -> str:
    """Name what a distribution adds to the namespace; core is the namespace."""
    return "fencekit" if dist == "fencekit-core" else dist.replace("-", ".")


def with_core(dist: str, file_of: Callable[[str], Path]) -> list[Path]:
    """List the files to install, so that nothing called fencekit is asked of an index."""
    return [file_of(name) for name in dict.fromkeys(("fencekit-core", dist))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dist", DISTRIBUTIONS)
def test_it_imports_with_only_what_it_needs(dist: str, form: str, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install(*with_core(dist, FORMS[form]))
    seen = environment.look(dist)
    # On Pythons before 3.11.3 redis-py brings async-timeout by itself; that is its own need.
    assert set(seen["direct"]) == NEEDS[dist]
    strangers = {"pydantic", "django", "celery", "typer", "rich", "opentelemetry-api"}
    strangers |= set(DISTRIBUTIONS) - {dist, "fencekit-core"}
    assert strangers & set(seen["installed"]) <= NEEDS[dist]
    assert all(name.startswith(str(tmp_path)) for name in seen["where"])
    if dist == "fencekit-core":
        for module, complaint in seen["refused"].items():
            (wanted,) = (w for m, w in FOR_AN_EXTRA.items() if f"{module}.".startswith(f"{m}."))
            assert any(name in complaint for name in wanted.split()), complaint
    else:
        assert seen["refused"] == {}


def test_core_alone_is_one_dependency(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install(wheel_of("fencekit-core"))
    installed = set(environment.look("fencekit-core")["installed"])
    assert installed - {"async-timeout"} == {"fencekit-core", "redis"}


def test_the_command_without_its_extra_says_what_it_needs(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install(wheel_of("fencekit-core"))
    command = environment.python.parent / "fencekit"
    ran = subprocess.run([command], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "fencekit-core[cli]" in ran.stderr


def test_an_extra_brings_what_its_modules_need(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install(f"fencekit-core[{','.join(EXTRAS)},embedded] @ {wheel_url()}")
    seen = environment.look("fencekit-core")
    assert set.union(*EXTRAS.values()) <= set(seen["installed"])
    assert seen["refused"] == {}
    assert "fencekit.cli.app" in seen["imported"]
    version = wheel_of("fencekit-core").name.split("-")[1]
    assert version in run(environment.python.parent / "fencekit", "--version")
    story = "from fencekit import embedded\nwith embedded.server() as url: print(url)"
    assert "127.0.0.1" in run(environment.python, "-I", "-c", story)


def wheel_url() -> str:
    """Write core's wheel as a URL, which is how a file and its extras are named together."""
    return wheel_of("fencekit-core").as_uri()


def test_one_leaves_without_taking_the_others_along(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install(*(wheel_of(dist) for dist in DISTRIBUTIONS))
    packages = {dist: package_of(dist) for dist in DISTRIBUTIONS if dist != "fencekit-django"}
    assert all(environment.imports(package) for package in packages.values())
    for leaving in ("fencekit-fifo", "fencekit-cache", "fencekit-celery"):
        environment.uninstall(leaving)
        assert not environment.imports(packages.pop(leaving))
        assert all(environment.imports(package) for package in packages.values())
