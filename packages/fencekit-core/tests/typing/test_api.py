"""`api.py` is for type checkers; what it must not do is leave something out."""

import ast
from pathlib import Path

import fencekit


def test_the_typing_test_uses_every_public_name() -> None:
    tree = ast.parse(Path(__file__).with_name("api.py").read_text(encoding="utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert set(fencekit.__all__) <= names
