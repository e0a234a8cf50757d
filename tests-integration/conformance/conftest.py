from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from conformance.columns import PROFILES, QUICK, Profile
from conformance.results import collected
from conformance.stage import Rig, Site, Stage
from harness.clients import Colour


def pytest_configure(config: pytest.Config) -> None:
    """Where xdist's workers report to, keep what each test came to."""
    plugin = None if hasattr(config, "workerinput") else collected()
    if plugin is not None:
        config.pluginmanager.register(plugin)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that asks for a rig on every profile; a few of them are quick."""
    if "profile" in metafunc.fixturenames and not any(
        mark.name == "parametrize" and "profile" in mark.args[0]
        for mark in metafunc.definition.iter_markers()
    ):
        metafunc.parametrize("profile", [profile_param(profile) for profile in PROFILES])


def profile_param(profile: Profile) -> object:
    """Return a parameter that is sent to the worker which has the servers of its stage."""
    marks = [pytest.mark.xdist_group(profile.stage)]
    marks.append(pytest.mark.quick if str(profile) in QUICK else pytest.mark.full)
    return pytest.param(profile, id=str(profile), marks=marks)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests of one stage together: only its servers run then."""

    def stage(item: pytest.Item) -> str:
        call = getattr(item, "callspec", None)
        profile = call.params.get("profile") if call is not None else None
        return profile.stage if isinstance(profile, Profile) else ""

    items.sort(key=stage)


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """Share the servers of one stage at a time."""
    stage = Stage()
    yield stage
    stage.close()


@pytest_asyncio.fixture
async def rig(profile: Profile, stage: Stage) -> AsyncIterator[Rig]:
    """Give clients of one profile, and fencekit on them."""
    rig = Rig.of(profile, stage.backend(profile))
    yield rig
    await rig.close()


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    """Run the test in both colours."""
    colour: Colour = request.param
    return colour


@pytest_asyncio.fixture
async def rig_at(colour: Colour) -> AsyncIterator[Callable[..., Rig]]:
    """Give `rig_at(url, topology, family=…)`: clients of servers that the test has."""
    rigs: list[Rig] = []

    def make(url: str, topology: Any = "single", **options: Any) -> Rig:
        rigs.append(Rig(Site(url, topology), colour, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        await rig.close()
