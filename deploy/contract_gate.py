"""Gate of the contracts: `python -m deploy.contract_gate` compares them with all that were released.

`python -m deploy.contract_gate VERSION` releases them: it copies the schemas to `deploy/released/VERSION`.

Old records of inputs and tables are read for ever, because a replay reads all history: each version of them
must accept what any released version accepts. What the job writes for others, and itself, is also read by
programs of an older release: a released version of it must not change in either direction; what would, gets
the next number in its name.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.cli import end
from feature_store.errors import FraudError
from streaming_job import contracts
from streaming_job.contracts.compatibility import narrowings
from streaming_job.contracts.topic import Role
from streaming_job.contracts.topics import TABLE

CURRENT = Path(contracts.__file__).parent
RELEASED = Path(__file__).parent / "released"


class ContractGateError(FraudError):
    """A contract is incompatible with a released version of it.

    Undo the change, make it wider, or give an output's contract the next version.
    """


def _inputs() -> frozenset[str]:
    """Return the contracts whose records are read for ever, without their versions."""
    rows = (row for row in TABLE.values() if row.role in (Role.INPUT, Role.TABLE))
    return frozenset(str(row.contract).partition(".v")[0] for row in rows)


def faults(current: Path, released: Path) -> Iterator[str]:
    """Yield each incompatibility of the schemas in `current` with a release in a directory of `released`."""
    read_for_ever = _inputs()
    for release in sorted(released.iterdir()) if released.exists() else ():
        for old in sorted(release.glob("*.v*.json")):
            kind = old.name.partition(".v")[0]
            successors = sorted(current.glob(f"{kind}.v*.json" if kind in read_for_ever else old.name))
            if not successors and kind in read_for_ever:
                yield f"{kind}: no schema any more, but {release.name} has one"
            for new in successors:
                texts = [*_compared(old, new)]
                if kind not in read_for_ever:
                    texts += [f"{text}, for readers of that release" for text in _compared(new, old)]
                for text in texts:
                    yield f"{new.stem}, released as {old.stem} in {release.name}: {text}"


def _compared(wide: Path, narrow: Path) -> Iterator[str]:
    return narrowings(_load(wide), _load(narrow), _definitions(wide), _definitions(narrow))


def _load(path: Path) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = json.loads(path.read_text())
    return schema


def _definitions(path: Path) -> Callable[[str], Any]:
    """Return the function that resolves a `$ref` of a schema, in its own file or in one beside it."""

    def resolve(reference: str) -> Any:
        file, _, pointer = reference.partition("#/")
        found: Any = _load(path.with_name(file) if file else path)
        for name in pointer.split("/"):
            found = found[name]
        return found

    return resolve


def release(version: str) -> None:
    """Copy the current schemas, once they are compatible with all released ones.

    Raises:
        ContractGateError: they are incompatible, or the version is released already.
    """
    check()
    if (RELEASED / version).exists():
        raise ContractGateError(f"{version} is released already: choose another version")
    (RELEASED / version).mkdir(parents=True)
    for schema in CURRENT.glob("*.json"):
        shutil.copy(schema, RELEASED / version)


def check() -> None:
    """Print each incompatibility.

    Raises:
        ContractGateError: there are some.
    """
    for schema in CURRENT.glob("*.v*.json"):
        assert not [*_compared(schema, schema)]  # an unknown keyword is refused also before the first release
    found = [*faults(CURRENT, RELEASED)]
    for fault in found:
        print(fault)
    if found:
        raise ContractGateError(
            f"{len(found)} incompatibilities with released contracts, see above: undo the change, make it "
            "wider, or give an output's contract the next version"
        )


if __name__ == "__main__":
    end(lambda: release(sys.argv[1]) if sys.argv[1:] else check())
