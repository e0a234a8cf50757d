"""Every rule in harness/broken.py is a part of its scripts, and some test needs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import broken

RULES = {name: rule for name, rule in vars(broken).items() if isinstance(rule, broken.Rule)}
TESTS = "".join(
    path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].glob("*/test_*.py")
)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_can_be_taken_out_of_its_scripts(name: str) -> None:
    with RULES[name].removed():
        pass


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_needed_by_a_test(name: str) -> None:
    assert re.search(rf"\bbroken\.{name}\b", TESTS)
