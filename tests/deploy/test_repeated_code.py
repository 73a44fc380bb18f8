"""The search of `make lint` for code that is written twice."""

import pytest
from harness.repeated_code import main, repeated

pytestmark = pytest.mark.unit

BLOCK = "".join(f"    total += weigh(item[{n}], {n})\n" for n in range(7))


def module(name: str, body: str) -> tuple[str, str]:
    return (
        name,
        f'"""Module {name}."""\nimport {name}\n\n\ndef {name}(item):\n    """Text."""\n{body}    return 1\n',
    )


def test_a_block_in_two_modules_is_reported_with_its_places() -> None:
    other = "    first = 1\n"
    (text,) = repeated(iter([module("a", BLOCK), module("b", other), module("c", other + BLOCK)]))
    assert text.startswith("8 lines in a:7-14, c:8-15:\n    total += weigh(item[0], 0)\n")


def test_imports_signatures_docstrings_and_comments_do_not_count() -> None:
    repeats = (
        "".join(f"import module_{n}\n" for n in range(8)),
        "def f(\n" + "".join(f"    argument_{n}: int,\n" for n in range(8)) + ") -> None:\n    return\n",
        '"""Text.\n\n' + "".join(f"Line {n}.\n" for n in range(8)) + '"""\n',
        "".join(f"# line {n}\n" for n in range(8)),
    )
    for text in repeats:
        assert not repeated(iter([("a", text), ("b", text)]))


def test_a_short_block_may_be_repeated() -> None:
    short = "".join(BLOCK.splitlines(keepends=True)[:5])
    assert not repeated(iter([module("a", short), module("b", short)]))


def test_the_command_names_the_files_and_fails(tmp_path, capsys) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(module(name, BLOCK)[1])
    assert main([str(tmp_path)]) == 1
    assert f"{tmp_path}/a.py:7-14" in capsys.readouterr().out
    (tmp_path / "b.py").write_text("")
    assert main([str(tmp_path)]) == 0
