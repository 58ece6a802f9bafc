"""Linear programs of one form: how much of each column, so that no row is more than full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Solution:
    """An optimal corner and the price of each row there."""

    values: Vector
    """(columns,)"""
    prices: Vector
    """(rows,), never negative: what one more unit of room in the row would be worth."""


def maximise(columns: Matrix, worth: Vector | None = None) -> Solution:
    """max worth · x, x ≥ 0, such that columnsᵀ · x ≤ 1 in every row; `worth` is 1 for each column when left out.

    `columns` is (columns, rows) and every column has an entry above 0. Deterministic.
    """
    import highspy

    count, rows = columns.shape
    worth = np.ones(count) if worth is None else worth
    column, row = np.nonzero(columns)
    program: Any = highspy.HighsLp()
    program.num_col_, program.num_row_ = count, rows
    program.col_cost_ = -worth
    program.col_lower_, program.col_upper_ = np.zeros(count), np.full(count, np.inf)
    program.row_lower_, program.row_upper_ = np.full(rows, -np.inf), np.ones(rows)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(column, minlength=count))]).astype(np.int32)
    program.a_matrix_.index_ = row.astype(np.int32)
    program.a_matrix_.value_ = columns[column, row]
    solver = _solver()
    solver.passModel(program)
    solver.run()
    solution = solver.getSolution()
    return Solution(np.maximum(solution.col_value, 0.0), np.maximum(-np.array(solution.row_dual), 0.0))


def _solver() -> Any:
    import highspy

    # The class above it in highspy prints a banner to standard output as soon as it is made, and adds what is not
    # needed here: callbacks and a modelling language.
    solver: Any = highspy._Highs()  # type: ignore[attr-defined]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("presolve", "off")
    solver.setOptionValue("threads", 1)
    return solver
