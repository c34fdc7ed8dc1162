"""Read what stands beside the fields of a dataclass: its meaning, as a comment."""

from __future__ import annotations

import ast
import io
import tokenize


def field_comments(source: str, class_name: str) -> dict[str, str]:
    """Return the fields of a class with their comments: those in their line, and those in the lines just above.

    >>> field_comments("class A:\\n    # Above,\\n    x: int = 1  # beside\\n    y: int\\n", "A")
    {'x': 'Above, beside', 'y': ''}
    """
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {
        token.start[0]: (token.string.lstrip("# ").rstrip(), not token.line[: token.start[1]].strip())
        for token in tokens
        if token.type == tokenize.COMMENT
    }
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef) or node.name != class_name:
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                above: list[str] = []
                line = field.lineno - 1
                while line in comments and comments[line][1]:
                    above.insert(0, comments[line][0])
                    line -= 1
                beside = [comments[field.end_lineno][0]] if field.end_lineno in comments else []
                found[field.target.id] = " ".join([*above, *beside])
    return found
