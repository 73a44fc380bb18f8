"""A change of the source tree as a newcomer makes it, in an overlay, and the checks that then run there.

The overlay has copies of the folders that the change touches; all other modules come from the tree itself, so
that its compiled kernels are used.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FALL_BACK = "\n__path__.append({!r})  # modules that the overlay lacks\n"


@dataclass(frozen=True)
class Change:
    """Edits of files, and new files."""

    edits: Sequence[tuple[str, str, str]]
    """(file, text that it contains once, replacement)."""
    new: Mapping[str, str] = field(default_factory=dict)
    """Contents by file."""

    @property
    def files(self) -> list[str]:
        """The touched files."""
        return sorted({*self.new, *(name for name, _, _ in self.edits)})

    def without(self, name: str) -> "Change":
        """Return the change by a newcomer who forgets a file."""
        return Change(
            [edit for edit in self.edits if edit[0] != name],
            {new: text for new, text in self.new.items() if new != name},
        )

    def apply(self, overlay: Path) -> None:
        """Make the change in a new overlay."""
        for folder in {str(Path(name).parent) for name in self.files}:
            (overlay / folder).mkdir(parents=True, exist_ok=True)
            for path in filter(Path.is_file, (ROOT / folder).iterdir()):
                shutil.copy2(path, overlay / folder)
            for package in (Path(folder), *Path(folder).parents[:-1]):
                marker = overlay / package / "__init__.py"
                text = (ROOT / package / "__init__.py").read_text()
                marker.write_text(text + _FALL_BACK.format(str(ROOT / package)))
        self.edit(overlay)

    def edit(self, tree: Path) -> None:
        """Make the change in a copy of the source tree, or of the folders that it touches."""
        for name, before, after in self.edits:
            text = (tree / name).read_text()
            assert text.count(before) == 1, f"{name}: {before}"
            (tree / name).write_text(text.replace(before, after))
        for name, text in self.new.items():
            (tree / name).write_text(text)


A_FEATURE = Change(
    [
        ("feature_store/catalogue.py", "    *_windowed(),\n", """\
    Feature("minute_of_hour", Key.TRANSACTION, "min", "Minute of t within its hour, 0..59"),
    *_windowed(),
"""),
        ("feature_store/kernels/card_features.py", "C_HOUR, C_NIGHT", """\
C_MINUTE = COLUMN["minute_of_hour"]
C_HOUR, C_NIGHT"""),
        ("feature_store/kernels/card_features.py", "    out[C_HOUR] = hour\n", """\
    out[C_HOUR] = hour
    out[C_MINUTE] = time // 60_000 % 60
"""),
        ("models/sentences/features.py", '    "hour_of_day": ', """\
    "minute_of_hour": lambda value, _, __: f"{value:.0f} minutes past the hour",
    "hour_of_day": """),
        ("loadtests/oracle/features.py", '@feature("hour_of_day")\n', """\
@feature("minute_of_hour")
def _minute_of_hour(view: View) -> float:
    return view.tx.event_time // 60_000 % 60


@feature("hour_of_day")
"""),
    ]
)  # fmt: skip
"""The feature `minute_of_hour`."""


def passed(overlay: Path, tests: Sequence[str]) -> set[str]:
    """Run tests on the overlay's code; return the ids of those that passed, or raise AssertionError."""
    path = " ".join(map(str, (overlay, ROOT, ROOT / "tests")))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if (overlay / "feature_store").exists():  # other kernels than those in the user's cache
        environment["NUMBA_CACHE_DIR"] = str(overlay / "kernels")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-o", f"pythonpath={path}",
         "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), *(str(ROOT / test) for test in tests)],
        cwd=overlay, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return set(re.findall(r"^(\S+::\S+) PASSED", done.stdout, re.MULTILINE))
