"""Estimators from untrusted files: listed types and valid trees are read, all others are refused."""

import io
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import skops.io
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.tree._tree import Tree

from models import archives, estimator_file
from models.errors import ModelError

pytestmark = pytest.mark.unit

WIDTH = 4
Schema = dict[str, Any]


def history() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(300, WIDTH))
    return x, (x[:, 0] + x[:, 1] > 1).astype(int)


X, Y = history()
GAPS = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)


def read(content: bytes) -> Any:
    return estimator_file.read(io.BytesIO(content))


def imputed(*steps: object) -> object:
    return make_pipeline(SimpleImputer(add_indicator=True), *steps)


KNOWN = {
    "forest": RandomForestClassifier(5, class_weight="balanced", max_samples=0.5, random_state=0, n_jobs=2),
    "extra trees": ExtraTreesClassifier(5, max_leaf_nodes=9, random_state=0),
    "tree": DecisionTreeClassifier(ccp_alpha=0.01, random_state=0),
    "extra tree": imputed(ExtraTreeClassifier(max_depth=4, random_state=0)),
    "regression": imputed(StandardScaler(), LogisticRegression(class_weight={0: 1.0, 1: 2.0})),
    "scalers": imputed(MinMaxScaler(), MaxAbsScaler(), RobustScaler(), LogisticRegression()),
    "columns": imputed(
        ColumnTransformer(
            [("some", StandardScaler(), [0, 1]), ("others", MinMaxScaler(), slice(2, 4))],
            remainder="passthrough",
        ),
        RandomForestClassifier(3, random_state=0),
    ),
}


@pytest.mark.parametrize("estimator", KNOWN.values(), ids=KNOWN.keys())
def test_listed_estimators_are_read_back_unchanged(estimator: Any) -> None:
    estimator.fit(GAPS, Y)
    again = read(estimator_file.dumps(estimator))
    assert type(again) is type(estimator)
    assert np.array_equal(again.predict_proba(GAPS), estimator.predict_proba(GAPS))


def test_scoring_uses_one_thread_whatever_the_file_asks_for() -> None:
    forest = RandomForestClassifier(3, random_state=0).fit(X, Y)
    forest.n_jobs = 1_000_000
    assert read(estimator_file.dumps(forest)).n_jobs is None


FOREIGN = {
    "HistGradientBoostingClassifier": HistGradientBoostingClassifier(max_iter=2),
    "GradientBoostingClassifier": GradientBoostingClassifier(n_estimators=2),
    "CalibratedClassifierCV": CalibratedClassifierCV(LogisticRegression()),
    "SVC": SVC(probability=False),
    "numpy.random.mtrand.RandomState": RandomForestClassifier(2, random_state=np.random.RandomState(0)),
    "log1p": make_pipeline(FunctionTransformer(np.log1p), MinMaxScaler(), LogisticRegression()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "estimator"), FOREIGN.items(), ids=FOREIGN.keys())
def test_an_unlisted_type_is_refused_by_name(name: str, estimator: Any) -> None:
    content = estimator_file.dumps(estimator.fit(np.abs(X), Y))
    with pytest.raises(ModelError, match=rf"holds a \S*{name} .*build the model of ColumnTransformer, .*"):
        read(content)


def forged(content: bytes, change: Callable[[Schema, dict[str, bytes]], None]) -> bytes:
    """The skops file `content` after `change` of its schema and members."""
    with ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members.pop("schema.json"))
    change(schema, members)
    out = io.BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as archive:
        for name, member in {**members, "schema.json": json.dumps(schema).encode()}.items():
            archive.writestr(name, member)
    return out.getvalue()


def node(loader: str, module: str, kind: str, content: Any) -> Schema:
    return {"__loader__": loader, "__module__": module, "__class__": kind, "content": content}


def text(value: object) -> Schema:
    return node("JsonNode", "builtins", "str", json.dumps(value))


def sequence(*items: Schema) -> Schema:
    return node("TupleNode", "builtins", "tuple", list(items))


def regression() -> bytes:
    return estimator_file.dumps(LogisticRegression().fit(X, Y))


def test_trees_that_share_arrays_are_refused_before_their_copies_exceed_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of the forest's trees refers to the same files: 200 kB on disk, and 80 times 100 kB of copies."""
    rng = np.random.default_rng(0)
    forest = RandomForestClassifier(1, random_state=0).fit(rng.random((5_000, 4)), rng.integers(0, 2, 5_000))

    def repeat(schema: Schema, members: dict[str, bytes]) -> None:
        trees = schema["content"]["content"]["estimators_"]
        trees["content"] = trees["content"] * 80

    content = forged(estimator_file.dumps(forest), repeat)
    assert len(content) < 1 << 20
    assert len(read(content).estimators_) == 80
    copied = []
    monkeypatch.setattr(archives, "MOST_BYTES", 4 << 20)
    monkeypatch.setattr("sklearn.tree._tree.Tree", lambda *shape: copied.append(shape) or Tree(*shape))
    with pytest.raises(ModelError, match=r"the model's files take in memory at least 4\.\d MiB, more than 4"):
        read(content)
    assert 5 < len(copied) < 80


@pytest.mark.parametrize("name", ["nodes", "values"])
def test_a_list_of_arrays_in_a_tree_is_refused_and_not_copied(name: str) -> None:
    """A list that names one array 500 times is small in the file; as an array it would have 50 MB."""
    rng = np.random.default_rng(0)
    tree = DecisionTreeClassifier(random_state=0).fit(rng.random((5_000, 4)), rng.integers(0, 2, 5_000))

    def repeat(schema: Schema, members: dict[str, bytes]) -> None:
        parts = schema["content"]["content"]["tree_"]["content"]["content"]
        parts[name] = node("ListNode", "builtins", "list", [parts[name]] * 500)

    content = forged(estimator_file.dumps(tree), repeat)
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match="damaged or forged"):
            read(content)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def writes(path: Path) -> bytes:
    """A regression in a file that makes a careless reader create `path`."""

    def change(schema: Schema, members: dict[str, bytes]) -> None:
        call = node("ConstructorFromReduceNode", "io", "open", sequence(text(str(path)), text("w")))
        schema["content"]["content"]["verbose"] = call

    return forged(regression(), change)


def test_a_call_in_a_file_is_not_executed(tmp_path: Path) -> None:
    skops.io.loads(writes(tmp_path / "skops"), trusted=["io.open"]).verbose.close()
    assert (tmp_path / "skops").exists()  # skops makes the call if the caller trusts io.open
    with pytest.raises(ModelError, match=r"holds a io\.open \(ConstructorFromReduceNode\)"):
        read(writes(tmp_path / "ours"))
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    "foreign",
    [
        node("FunctionNode", "os", "system", None),
        node("TypeNode", "builtins", "str", None),
        node("ObjectNode", "subprocess", "Popen", None),
        node("ObjectNode", "builtins", "str", None),
        node("TupleNode", "sklearn.pipeline", "Pipeline", []),
        node("DictNode", "collections", "OrderedDict", {}),
        node("ConstructorFromReduceNode", "sklearn.pipeline", "Pipeline", sequence()),
        node("MethodNode", "sklearn.pipeline", "Pipeline", {"func": "fit", "obj": text(1)}),
        node("OperatorFuncNode", "operator", "methodcaller", sequence(text("fit"))),
        node("CachedNode", "builtins", "str", None),
        node("TreeNode", "sklearn.tree._tree", "Tree", None),
        node("NoNode", "builtins", "str", None),
    ],
    ids=lambda foreign: f"{foreign['__loader__']} {foreign['__class__']}",
)
def test_no_other_kind_of_node_is_read(foreign: Schema) -> None:
    def change(schema: Schema, members: dict[str, bytes]) -> None:
        schema["content"]["content"]["verbose"] = foreign

    with pytest.raises(ModelError, match="which workers do not load"):
        read(forged(regression(), change))


def test_another_protocol_is_refused() -> None:
    with pytest.raises(ModelError, match="protocol 0, not 2"):
        read(forged(regression(), lambda schema, _: schema.update(protocol=0)))


def test_an_archive_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 20)
    read(regression())
    bomb = forged(regression(), lambda _, members: members.update(more=bytes(2 << 20)))
    assert len(bomb) < 1 << 16
    with pytest.raises(ModelError, match=r"unpack to 2\.0 MiB, more than 1"):
        read(bomb)


TREE = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, Y)
NODES = TREE.tree_.__getstate__()["nodes"]


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def with_nodes(nodes: np.ndarray) -> bytes:
    def change(schema: Schema, members: dict[str, bytes]) -> None:
        members[schema["content"]["content"]["tree_"]["content"]["content"]["nodes"]["file"]] = npy(nodes)

    return forged(estimator_file.dumps(TREE), change)


def nodes_with(field: str, at: int, to: int) -> bytes:
    nodes = NODES.copy()
    nodes[field][at] = to
    return with_nodes(nodes)


def attribute(name: str, to: Schema | None) -> bytes:
    def change(schema: Schema, members: dict[str, bytes]) -> None:
        state = schema["content"]
        at = list(state["content"]).index(name)
        if to is None:
            del state["content"][name], state["key_types"]["content"][at]
        else:
            state["content"][name] = to

    return forged(estimator_file.dumps(TREE), change)


def argument(at: int, to: Schema) -> bytes:
    def change(schema: Schema, members: dict[str, bytes]) -> None:
        schema["content"]["content"]["tree_"]["__reduce__"]["args"]["content"][at] = to

    return forged(estimator_file.dumps(TREE), change)


def many_classes() -> bytes:
    def change(schema: Schema, members: dict[str, bytes]) -> None:
        args = schema["content"]["content"]["tree_"]["__reduce__"]["args"]["content"]
        members[args[1]["file"]] = npy(np.full(2, 2))

    return forged(estimator_file.dumps(TREE), change)


FORGED_TREES = {
    "a left child beyond the nodes": nodes_with("left_child", 0, 10**6),
    "a right child beyond the nodes": nodes_with("right_child", 0, len(NODES)),
    "a negative child": nodes_with("left_child", 0, -2),
    "one child": nodes_with("right_child", 0, -1),
    "a cycle": nodes_with("left_child", 1, 0),
    "its own child": nodes_with("left_child", 0, 0),
    "a column beyond the row": nodes_with("feature", 0, WIDTH),
    "a negative column": nodes_with("feature", 0, -2),
    "no nodes": with_nodes(NODES[:0]),
    "fewer nodes than values": with_nodes(NODES[:-1]),
    "nodes of another type": with_nodes(NODES.view(np.int64)),
    "rows that are narrower than the tree's columns": attribute("n_features_in_", text(WIDTH - 1)),
    "a width that is no number": attribute("n_features_in_", text([WIDTH])),
    "no width": attribute("n_features_in_", None),
    "something else as a tree": attribute("tree_", text(1)),
    "more columns than its estimator": argument(0, text(10**6)),
    "more outputs than classes": argument(2, text(10**6)),
    "classes for more outputs": many_classes(),
}


@pytest.mark.parametrize("content", FORGED_TREES.values(), ids=FORGED_TREES.keys())
def test_forged_trees_are_refused_before_scikit_learn_sees_them(content: bytes) -> None:
    with pytest.raises(ModelError, match="a tree of the model is"):
        read(content)


def walk(nodes: np.ndarray, row: np.ndarray) -> int:
    """The leaf of a row, with each index checked before it is used."""
    at, steps = 0, 0
    while nodes["left_child"][at] != -1:
        column, steps = nodes["feature"][at], steps + 1
        assert 0 <= column < WIDTH
        assert steps < len(nodes)
        value, left = np.float32(row[column]), nodes["missing_go_to_left"][at]
        if not np.isnan(value):
            left = value <= nodes["threshold"][at]
        at = nodes["left_child" if left else "right_child"][at]
        assert 0 <= at < len(nodes)
    return int(at)


def changes() -> Iterator[tuple[str, list[Any]]]:
    for field in NODES.dtype.names:
        near = [-2, -1, 0, 1, 2, WIDTH, len(NODES) - 1, len(NODES)]
        yield field, [*near, -(2**63), 2**63 - 1] if NODES.dtype[field] == np.int64 else near[2:5]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(list(changes())).flatmap(
            lambda change: st.tuples(
                st.just(change[0]), st.integers(0, len(NODES) - 1), st.sampled_from(change[1])
            )
        ),
        min_size=1,
        max_size=3,
    )
)
def test_corrupted_trees_are_refused_or_walked_within_bounds(found: list[tuple[str, int, int]]) -> None:
    nodes = NODES.copy()
    for field, at, to in found:
        nodes[field][at] = to
    try:
        tree = read(with_nodes(nodes))
    except ModelError:
        return
    leaves = [walk(nodes, row) for row in GAPS]
    assert tree.tree_.apply(GAPS.astype(np.float32)).tolist() == leaves
