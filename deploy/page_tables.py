"""Tables in Markdown that are made from the code, in pages whose other text is written by hand."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path


def update(page: Callable[[str], str]) -> None:
    """Replace the file that the program's argument names by the page made of its text."""
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text()))


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
