"""Tables in Markdown that are made from the code, in pages whose other text is written by hand."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table."""
    lines = [f"| {' | '.join(map(str, cells))} |\n" for cells in (head, *rows)]
    return f"{lines[0]}|{'---|' * len(head)}\n{''.join(lines[1:])}"


def with_table(page: str, heading: str, table: str) -> str:
    """Return a page with a table in place of the first one below a heading."""
    before, _, section = page.partition(f"# {heading}\n")
    introduction, _, rest = f"\n{section}".partition("\n\n|")
    assert rest, f"the page has no table below the heading {heading!r}"
    _, _, after = rest.partition("\n\n")
    return f"{before}# {heading}{introduction}\n\n{table}" + (f"\n{after}" if after else "")


def docstrings(described: type) -> dict[str, str]:
    """Return the strings below the fields of a class or the members of an enum, by name."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(described))).body
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = inspect.cleandoc(text)
    return texts
