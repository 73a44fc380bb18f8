"""A reader of scikit-learn estimators in skops files that does not trust the file.

skops' own reader accepts every scikit-learn class, and further types that its caller lists. It checks types
but not contents, although scikit-learn's compiled code uses a tree's numbers as unchecked indexes. This
reader constructs only the types listed below: numbers, text, arrays, their containers, and estimators whose
classes predict with numpy and Python code, or with scikit-learn's compiled trees, which are range-checked. No
function, type or bound method is ever constructed, so no attribute of a loaded estimator is a callable that
the file chose.

To add a class: read what its predict_proba or transform does with attributes that an attacker chose, above
all what compiled code does with them; then list the class, and add it to the tests.
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
"""Protocol version of skops files."""

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
    # only as a pass-through: a file with a function is refused
    "sklearn.preprocessing._function_transformer.FunctionTransformer",
}
"""Estimator classes that may be loaded; `models.trees` compiles a HistGradientBoostingClassifier instead."""
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
"""Node kind of a skops file -> types that it may construct."""
KEYS = {"builtins.str": str, "builtins.int": int, "builtins.float": float}


def dumps(estimator: Any) -> bytes:
    """Serialise an estimator in skops format."""
    import skops.io

    return bytes(skops.io.dumps(estimator))


def read(file: Path | BinaryIO) -> Any:
    """Read an estimator that `dumps` or MLflow wrote, and set it to use one thread.

    Raises:
        ModelError: the file is too large, or has another protocol version, an unlisted type or damaged trees.
        Exception: the file is not in skops format; the type depends on the reader that fails.
    """
    with archives.opened(file) as archive:
        schema = json.loads(archive.read("schema.json"))
        if schema["protocol"] != PROTOCOL:
            raise ModelError(
                f"the model's file has skops protocol {schema['protocol']}, not {PROTOCOL}; register it "
                "again with this release"
            )
        return _Reader(archive).read(schema)


class _Reader:
    """Constructs objects from the nodes of one archive.

    Nodes may refer to one array any number of times, but each compiled tree copies its arrays: so the sizes
    of the copies are added up, before each copy.
    """

    def __init__(self, archive: ZipFile) -> None:
        self._archive = archive
        self._copied = 0  # bytes of the trees so far
        self._arrays: dict[str, np.ndarray] = {}  # each read once, however often nodes refer to it

    def read(self, node: Any) -> Any:
        """Construct the object of a node."""
        loader, name = str(node["__loader__"]), f"{node['__module__']}.{node['__class__']}"
        if name not in PLAIN.get(loader, ()):
            raise ModelError(
                f"the model holds a {name} ({loader}), which workers do not load; build the "
                f"model of {', '.join(sorted(path.rpartition('.')[2] for path in ESTIMATORS))}, and give "
                "numbers as random_state; or train a HistGradientBoostingClassifier on two classes, without "
                "categorical features"
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
        if node["type"] == "json":  # an array of objects: the names of columns
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
        if "n_jobs" in attributes:  # a file must not choose how many threads score
            attributes["n_jobs"] = None
        module, _, kind = name.rpartition(".")
        estimator_class = getattr(importlib.import_module(module), kind)
        instance = estimator_class.__new__(estimator_class)
        instance.__setstate__(attributes)
        return instance

    def _tree(self, node: Any, width: Any) -> Any:
        """Construct scikit-learn's compiled tree from range-checked arrays.

        Args:
            node: the tree's node in the file's schema.
            width: n_features_in_ of the tree's estimator; scikit-learn refuses rows of another width.
        """
        from sklearn.tree._tree import NODE_DTYPE, Tree

        if node["__loader__"] != "TreeNode":
            raise ModelError("a tree of the model is not one of scikit-learn; train and register it again")
        features, classes, outputs = self.read(node["__reduce__"]["args"])
        parts = self.read(node["content"])
        nodes, values = parts["nodes"], parts["values"]
        if not (
            type(width) is int
            and features == width > 0
            and outputs == 1
            # nothing is converted: a list of arrays would be copied
            and isinstance(nodes, np.ndarray)
            and isinstance(values, np.ndarray)
            and nodes.dtype == NODE_DTYPE
            and values.dtype == np.float64
            and nodes.ndim == 1
            and classes.shape == (1,)
            and values.shape == (len(nodes), 1, int(classes[0]))
            and values.size > 0
            and _stay_inside(nodes, width)
        ):
            raise ModelError("a tree of the model is damaged or forged; train and register it again")
        self._copied += nodes.nbytes + values.nbytes
        archives.require_size(self._copied, "take in memory at least")
        tree = Tree(width, np.array([values.shape[2]], dtype=np.intp), 1)
        tree.__setstate__(
            {"max_depth": int(parts["max_depth"]), "node_count": len(nodes), "nodes": nodes, "values": values}
        )
        return tree


def _stay_inside(nodes: np.ndarray, width: int) -> bool:
    """Return whether each walk from the root ends, and reads only existing nodes and columns."""
    left, right, column = nodes["left_child"], nodes["right_child"], nodes["feature"]
    inner = (left != -1) | (right != -1)
    descend = all(
        ((np.arange(len(nodes)) < child) & (child < len(nodes)))[inner].all() for child in (left, right)
    )
    return descend and bool(((column >= 0) & (column < width))[inner].all())
