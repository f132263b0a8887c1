"""Operators and predictions as values: equal where they are the same call, whatever they keep of their own results."""

from __future__ import annotations

import copy
import pickle

import numpy as np

import perfmodel as pm


def gemm(**changes: object) -> pm.Operator:
    return pm.Gemm(**{"m": 64, "n": 128, "k": 256, **changes})


def test_the_same_call_is_one_value_that_can_be_a_key() -> None:
    op, same = gemm(), gemm()
    op.work()  # which the operator keeps
    assert op == same == copy.deepcopy(op) == pickle.loads(pickle.dumps(op))
    assert {op: "product"}[same] == "product"
    others = [gemm(m=65), gemm(dtype="fp16"), gemm(name="head"), gemm(count=2), pm.Softmax(rows=64, cols=128)]
    assert len({op, same, *others}) == 1 + len(others)
    assert op != "gemm"
    assert gemm(out_dtype="fp32") == op, "what is given as it would be derived is the same"


def test_arrays_are_equal_where_all_numbers_are() -> None:
    sweep = gemm(m=[64, 128])
    assert sweep == gemm(m=np.array([64.0, 128.0]))
    assert hash(sweep) == hash(gemm(m=np.array([64.0, 128.0])))
    one = gemm(m=np.array(64.0))
    assert (one, hash(one)) == (gemm(), hash(gemm()))
    for other in (gemm(m=[64, 129]), gemm(m=[64, 128, 256]), gemm(m=64), gemm(m=[[64], [128]])):
        assert sweep != other


def test_predictions_are_equal_where_they_were_asked_for_alike() -> None:
    for op in (gemm(), gemm(m=[64, 128])):
        found = pm.predict(op, "h100")
        assert found == copy.deepcopy(found) == pm.predict(op, "h100")
        assert len({found, pm.predict(op, "h100"), pm.predict(op, "a100")}) == 2
        assert found != pm.predict(op, "a100")
        assert found != pm.predict(op, "h100", timing="event")
