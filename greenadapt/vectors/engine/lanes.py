"""Vectors of numbers in compiled code, which LLVM maps to the processor's widest registers.

LLVM does not vectorize loops over single numbers with many sums or many rows. Rows are therefore processed in pieces of
``LANES`` numbers for products, or of ``WIDE`` numbers where few values are live at once; the width of rows must be a
multiple of a piece (``pad_rows``).

This relies on numba's internals, which any release can change: ``require_working`` detects changes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.np import arrayobj

from greenadapt.vectors.engine.stream import PIECE

LANES = 16
"""Numbers in a piece: 64 bytes, a cache line."""
WIDE = PIECE
"""Numbers in a wide piece."""
intrinsic: Callable[[Callable[..., Any]], Any] = extending.intrinsic
_MAY_FUSE = ("contract",)  # allows fused multiply-add


class _Lanes(types.Type):
    """``width`` float32 numbers."""

    def __init__(self, width: int) -> None:
        super().__init__(name=f"lanes{width}")
        self.width = width

    @property
    def vector(self) -> Any:
        """The LLVM type."""
        return ir.VectorType(ir.FloatType(), self.width)


@extending.register_model(_Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: _Lanes) -> None:
        super().__init__(manager, kind, kind.vector)  # type: ignore[no-untyped-call]


_NARROW, _BROAD = _Lanes(LANES), _Lanes(WIDE)


def _item(context: Any, builder: Any, kind: Any, array: Any, row: Any, column: Any) -> Any:
    """A pointer to ``array[row, column]``."""
    view = arrayobj.make_array(kind)(context, builder, array)  # type: ignore[no-untyped-call]
    indices = [row, column]
    return cgutils.get_item_pointer(context, builder, kind, view, indices, wraparound=False)  # type: ignore[no-untyped-call]


def _make_load(lanes: _Lanes) -> Callable[..., Any]:
    def load(_: Any, array: Any, row: Any, column: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            item = _item(context, builder, signature.args[0], *arguments)
            return builder.load(builder.bitcast(item, lanes.vector.as_pointer()), align=4)

        return lanes(array, types.intp, types.intp), code

    return load


def _make_splat(lanes: _Lanes) -> Callable[..., Any]:
    def splat(_: Any, number: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            undefined, zero = ir.Constant(lanes.vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
            mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes.width), [0] * lanes.width)
            return builder.shuffle_vector(builder.insert_element(undefined, arguments[0], zero), undefined, mask)

        return lanes(types.float32), code

    return splat


load, load_wide = intrinsic(_make_load(_NARROW)), intrinsic(_make_load(_BROAD))
"""``load(array, row, column)``: load a piece of a row of float32 numbers as lanes."""
splat, splat_wide = intrinsic(_make_splat(_NARROW)), intrinsic(_make_splat(_BROAD))
"""``splat(number)``: lanes that all hold a float32 number."""


@intrinsic
def store(_: Any, array: Any, row: Any, column: Any, lanes: Any) -> Any:
    """Write lanes to a piece of a row."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        item = _item(context, builder, signature.args[0], *arguments[:3])
        builder.store(arguments[3], builder.bitcast(item, lanes.vector.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, lanes), code


def _make_operation(operation: str, flags: tuple[str, ...] = _MAY_FUSE) -> Any:
    """The ``operation`` of two lanes, number by number."""

    def declare(_: Any, a: Any, b: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, operation)(*arguments, flags=flags)

        return a(a, b), code

    declare.__name__ = operation  # in numba's messages
    return intrinsic(declare)


add, subtract = _make_operation("fadd"), _make_operation("fsub")
multiply, divide = _make_operation("fmul"), _make_operation("fdiv", flags=())


@intrinsic
def multiply_add(_: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c"""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.fmul(arguments[0], arguments[1], flags=_MAY_FUSE)
        return builder.fadd(product, arguments[2], flags=_MAY_FUSE)

    return a(a, b, c), code


@intrinsic
def total(_: Any, lanes: Any) -> Any:
    """The sum of lanes, in any order."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.FloatType()
        kind = ir.FunctionType(number, [number, lanes.vector])
        name = f"llvm.vector.reduce.fadd.v{lanes.width}f32"
        function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
        return builder.call(function, [ir.Constant(number, -0.0), arguments[0]], fastmath=("reassoc",))

    return types.float32(lanes), code


def _add_halves(builder: Any, a: Any, b: Any, width: int) -> Any:
    """Halve the blocks of ``width`` numbers: the sums of the halves of each, from ``a`` and ``b`` in turns."""
    half, blocks = width // 2, range(0, LANES, width)
    lower = [start + k for block in blocks for start in (block, LANES + block) for k in range(half)]
    kind = ir.VectorType(ir.IntType(32), LANES)
    halves = [ir.Constant(kind, indices) for indices in (lower, [index + half for index in lower])]
    return builder.fadd(*(builder.shuffle_vector(a, b, mask) for mask in halves))


@intrinsic
def store_totals(_: Any, array: Any, row: Any, lanes: Any) -> Any:
    """Write the sums of ``LANES`` lanes, a tuple, to the begin of a row."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = cgutils.unpack_tuple(builder, arguments[2])  # type: ignore[no-untyped-call]
        width = LANES
        while width > 1:
            n = len(vectors) // 2
            vectors = [_add_halves(builder, vectors[i], vectors[n + i], width) for i in range(n)]
            width //= 2
        zero = ir.Constant(ir.IntType(64), 0)
        item = _item(context, builder, signature.args[0], arguments[0], arguments[1], zero)
        builder.store(vectors[0], builder.bitcast(item, lanes.dtype.vector.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), code


@intrinsic
def prefetch(_: Any, array: Any, row: Any, column: Any) -> Any:
    """Prefetch a cache line that will be needed soon."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, whole, whole, whole])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        item = builder.bitcast(_item(context, builder, signature.args[0], *arguments), pointer)
        read, soon, data = whole(0), whole(2), whole(1)
        builder.call(function, [item, read, soon, data])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), code


@njit(cache=True)
def _probe(rows: Any) -> Any:
    """Use every operation on both kinds of lanes."""
    prefetch(rows, 0, 0)
    a, b = load(rows, 0, 0), splat(np.float32(2))
    store(rows, 1, 0, subtract(add(multiply_add(a, b, a), multiply(a, b)), divide(b, splat(np.float32(1)))))
    store_totals(rows, 3, (a, b, a, a, a, a, a, a, a, a, a, a, a, a, a, b))
    wide = splat_wide(np.float32(3))
    store(rows, 2, 0, multiply(load_wide(rows, 0, 0), wide))
    return total(a) + total(wide)


def require_working() -> None:
    """Raise ``RuntimeError``, or an error of numba, if compiled lanes compute wrong results."""
    rows = np.zeros((4, WIDE), np.float32)
    rows[0] = np.arange(WIDE)
    result = _probe(rows)
    narrow = np.where(np.arange(WIDE) < LANES, 5 * rows[0] - 2, 0)
    sums = np.repeat([LANES * (LANES - 1) / 2, 0], [LANES, WIDE - LANES])
    sums[[1, LANES - 1]] = 2 * LANES
    if result != sums[0] + 3 * WIDE or (rows[1:] != [narrow, 3 * rows[0], sums]).any():
        raise RuntimeError("compiled lanes compute wrong numbers")
