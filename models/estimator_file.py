"""Reads a scikit-learn estimator from a file of skops' without trusting the file.

skops' own reader takes any of scikit-learn's classes and, beyond them, what its caller lists. It checks types
and not contents, though scikit-learn's compiled code indexes with a tree's numbers unchecked. So this reader
makes nothing but what is listed below, which is data: numbers, text, arrays, and estimators of classes that
answer with numpy's and Python's code. Trees of forests are range-checked. No function, type or bound method
is ever made, so no attribute can be called.

To add a class: read what its predict_proba or transform does with attributes that an attacker chose, above
all what compiled code does with them; then list it, and add it to the tests.
"""

import importlib
import json
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

import numpy as np

from models import archives
from models.errors import ModelError

PROTOCOL = 2
"""Of skops' files."""

TREES = frozenset(
    {
        "sklearn.tree._classes.DecisionTreeClassifier",
        "sklearn.tree._classes.ExtraTreeClassifier",
    }
)
ESTIMATORS = TREES | {
    "sklearn.compose._column_transformer.ColumnTransformer",
    "sklearn.ensemble._forest.ExtraTreesClassifier",
    "sklearn.ensemble._forest.RandomForestClassifier",
    "sklearn.impute._base.MissingIndicator",
    "sklearn.impute._base.SimpleImputer",
    "sklearn.linear_model._logistic.LogisticRegression",
    "sklearn.pipeline.Pipeline",
    "sklearn.preprocessing._data.MaxAbsScaler",
    "sklearn.preprocessing._data.MinMaxScaler",
    "sklearn.preprocessing._data.RobustScaler",
    "sklearn.preprocessing._data.StandardScaler",
    # passes columns through: its function, if it has one, cannot be read
    "sklearn.preprocessing._function_transformer.FunctionTransformer",
}
"""What may be loaded, besides compiled trees (`trees.Trees`)."""
PLAIN = {
    "DictNode": {"builtins.dict"},
    "DTypeNode": {"numpy.dtype"},
    "JsonNode": {"builtins.str"},
    "ListNode": {"builtins.list"},
    "NdArrayNode": {f"numpy.{name}" for name in ("ndarray", "bool", "float32", "float64", "int32", "int64")},
    "ObjectNode": ESTIMATORS,
    "SliceNode": {"builtins.slice"},
    "TupleNode": {"builtins.tuple"},
}
"""Kinds of nodes of skops' files, and what each may make."""
KEYS = {"builtins.str": str, "builtins.int": int, "builtins.float": float}


def dumps(estimator: Any) -> bytes:
    """An estimator as a file of skops'."""
    import skops.io

    return bytes(skops.io.dumps(estimator))


def read(file: Path | BinaryIO) -> Any:
    """The estimator of a file that `dumps` or MLflow wrote, set to use one thread.

    Raises:
        ModelError: it holds something that is not listed here, or trees that are damaged.
        Exception: whatever its readers raise of a file that is not skops'.
    """
    with archives.opened(file) as archive:
        schema = json.loads(archive.read("schema.json"))
        if schema["protocol"] != PROTOCOL:
            raise ModelError(
                f"the model's file has skops' protocol {schema['protocol']}, not {PROTOCOL}; register it "
                "again with this release"
            )
        return _Reader(archive).read(schema)


class _Reader:
    """Makes objects of the nodes of one archive."""

    def __init__(self, archive: ZipFile) -> None:
        self._archive = archive
        self._arrays: dict[str, np.ndarray] = {}  # once each: a file may be named as often as it likes

    def read(self, node: Any) -> Any:
        """What a node stands for."""
        loader, name = str(node["__loader__"]), f"{node['__module__']}.{node['__class__']}"
        if name not in PLAIN.get(loader, ()):
            raise ModelError(
                f"the model holds a {name} ({loader}), which workers do not load; make it of "
                f"{', '.join(sorted(known.rpartition('.')[2] for known in ESTIMATORS))}, with numbers as "
                "random_state, or gradient-boosted trees for two classes without categorical features"
            )
        match loader:
            case "DictNode":
                kinds = [f"{key['__module__']}.{key['__class__']}" for key in node["key_types"]["content"]]
                pairs = zip(kinds, node["content"].items(), strict=True)
                return {KEYS[kind](key): self.read(value) for kind, (key, value) in pairs}
            case "DTypeNode":
                return self.read(node["content"]).dtype
            case "JsonNode":
                return json.loads(node["content"])
            case "ListNode":
                return [self.read(item) for item in node["content"]]
            case "NdArrayNode":
                return self._array(node, name)
            case "ObjectNode":
                return self._estimator(node["content"], name)
            case "SliceNode":
                return slice(*(node["content"][part] for part in ("start", "stop", "step")))
            case _:
                return tuple(self.read(item) for item in node["content"])

    def _array(self, node: Any, name: str) -> Any:
        if node["type"] == "json":  # of objects: names of columns
            items = [self.read(item) for item in node["content"]]
            array = np.empty(len(items), dtype=object)
            array[:] = items
            return array
        file = node["file"]
        if file not in self._arrays:
            self._arrays[file] = archives.array(self._archive, file)
        return self._arrays[file] if name == "numpy.ndarray" else self._arrays[file][()]

    def _estimator(self, state: Any, name: str) -> Any:
        state = dict(state["content"])
        tree = state.pop("tree_", None) if name in TREES else None
        attributes = {key: self.read(value) for key, value in state.items()}
        if tree is not None:
            attributes["tree_"] = self._tree(tree, attributes.get("n_features_in_"))
        if "n_jobs" in attributes:  # scoring is no reason to start as many processes as a file asks for
            attributes["n_jobs"] = None
        module, _, kind = name.rpartition(".")
        found = getattr(importlib.import_module(module), kind)
        instance = found.__new__(found)
        instance.__setstate__(attributes)
        return instance

    def _tree(self, node: Any, width: Any) -> Any:
        """scikit-learn's compiled tree, of arrays that its prediction may follow.

        Args:
            node: of the file.
            width: its estimator's n_features_in_: scikit-learn refuses rows of another width.
        """
        from sklearn.tree._tree import NODE_DTYPE, Tree

        if node["__loader__"] != "TreeNode":
            raise ModelError("a tree of the model is something else; train and register it again")
        features, classes, outputs = self.read(node["__reduce__"]["args"])
        parts = self.read(node["content"])
        nodes, values = np.asarray(parts["nodes"]), np.asarray(parts["values"])
        if not (
            type(width) is int
            and features == width > 0
            and outputs == 1
            and nodes.dtype == NODE_DTYPE
            and values.dtype == np.float64
            and nodes.ndim == 1
            and classes.shape == (1,)
            and values.shape == (len(nodes), 1, int(classes[0]))
            and values.size > 0
            and _stay_inside(nodes, width)
        ):
            raise ModelError("a tree of the model is damaged or forged; train and register it again")
        tree = Tree(width, np.array([values.shape[2]], dtype=np.intp), 1)
        tree.__setstate__(
            {"max_depth": int(parts["max_depth"]), "node_count": len(nodes), "nodes": nodes, "values": values}
        )
        return tree


def _stay_inside(nodes: np.ndarray, width: int) -> bool:
    """Whether each walk from the root ends, without a look beyond the nodes or a row of `width` columns."""
    left, right, column = nodes["left_child"], nodes["right_child"], nodes["feature"]
    inner = (left != -1) | (right != -1)
    after = all(((np.arange(len(nodes)) < kid) & (kid < len(nodes)))[inner].all() for kid in (left, right))
    return after and bool(((column >= 0) & (column < width))[inner].all())
