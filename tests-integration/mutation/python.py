"""Mutants of a Python module, by those operators of Cosmic Ray's that mimic a slip."""

from __future__ import annotations

import ast
import difflib
import itertools
from collections.abc import Iterator

__all__ = ["mutants"]

_COMPARISONS = (
    "Eq_NotEq NotEq_Eq Lt_LtE LtE_Lt Gt_GtE GtE_Gt Lt_GtE Gt_LtE LtE_Gt GtE_Lt Is_IsNot IsNot_Is"
)
_OPERATORS = [
    *(f"core/ReplaceComparisonOperator_{each}" for each in _COMPARISONS.split()),
    *(f"core/ReplaceBinaryOperator_{each}" for each in ("Add_Sub", "Sub_Add", "Div_Mul")),
    "core/AddNot",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
    "core/ExceptionReplacer",
    "core/NumberReplacer",
    "core/ZeroIterationForLoop",
]


def mutants(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield line number from 1, what was there, what is there instead, and the whole text."""
    # Only `hatch run mutate` needs it.
    from cosmic_ray.mutating import mutate_code  # noqa: PLC0415
    from cosmic_ray.plugins import get_operator  # noqa: PLC0415

    seen = {ast.dump(ast.parse(text))}
    for operator in _OPERATORS:
        for occurrence in itertools.count():
            changed = mutate_code(text, get_operator(operator)(), occurrence)
            if changed is None:
                break
            try:
                shape = ast.dump(ast.parse(changed))
            except SyntaxError:
                continue
            if shape not in seen and not _only_annotations(text, changed):
                seen.add(shape)
                yield (*_difference(text, changed), changed)


def _difference(text: str, changed: str) -> tuple[int, str, str]:
    before, after = text.splitlines(), changed.splitlines()
    for tag, i, j, k, m in difflib.SequenceMatcher(None, before, after).get_opcodes():
        if tag != "equal":
            was, now = (
                " ".join(line.strip() for line in part) for part in (before[i:j], after[k:m])
            )
            return i + 1, was, now
    return 0, "", ""


def _only_annotations(text: str, changed: str) -> bool:
    """Whether nothing differs that is ever run."""
    return ast.dump(_Bare().visit(ast.parse(text))) == ast.dump(_Bare().visit(ast.parse(changed)))


class _Bare(ast.NodeTransformer):
    """Takes out annotations and what only a type checker runs."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        if "TYPE_CHECKING" in ast.dump(node.test):
            return ast.Pass()
        return self.generic_visit(node)
