"""Search for code that is written twice: pylint's comparison of lines, without its slow parser.

    python -m harness.repeated_code DIRECTORY...

Imports, signatures, docstrings and comments do not count. Exits with 1 if two modules share a block.
"""

import ast
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pylint.checkers.symilar import Symilar

MIN_LINES = 6
"""A repeated block has more lines than this."""


def without_imports_and_signatures(source: str) -> str:
    """Blank the imports and function signatures of a module; the lines keep their numbers.

    Symilar could leave them out by itself, but would parse each module with astroid to do so, and a search of
    all modules would take 30 s instead of 2.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        for number in _left_out(node):
            lines[number - 1] = "\n"
    return "".join(lines)


def _left_out(node: ast.AST) -> Iterable[int]:
    """Return the line numbers of an import, or of a function's signature."""
    match node:
        case ast.Import() | ast.ImportFrom():
            return range(node.lineno, (node.end_lineno or node.lineno) + 1)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return range(node.lineno, node.body[0].lineno)
    return ()


def repeated(modules: Iterator[tuple[str, str]]) -> list[str]:
    """List the blocks that two or more modules have in common, one text a block.

    Args:
        modules: name and source of each module.
    """
    search = Symilar(MIN_LINES, ignore_comments=True, ignore_docstrings=True)
    for name, source in modules:
        search.append_stream(name, io.StringIO(without_imports_and_signatures(source)))
    texts = []
    for lines, places in search._compute_sims():
        names = [f"{module.name}:{start + 1}-{end}" for module, start, end in sorted(places)]
        module, start, end = min(places)
        texts.append(f"{lines} lines in {', '.join(names)}:\n{''.join(module.real_lines[start:end])}")
    return texts


def main(directories: list[str]) -> int:
    """Print the blocks that modules below the directories have in common; return the exit status."""
    paths = sorted(path for directory in directories for path in Path(directory).rglob("*.py"))
    blocks = repeated((str(path), path.read_text()) for path in paths)
    print("\n".join(blocks) or f"no code is written twice in {len(paths)} modules")
    return 1 if blocks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
