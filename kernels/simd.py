"""A vector of W doubles (or W 64-bit integers) as a value: loops over lanes read as formulas.

Compiled, a vector is one LLVM vector value and its operators are vector instructions: nothing
is left to the auto-vectoriser. Uncompiled, a vector is a NumPy array of W numbers and the same
source runs as plain Python, which the tests use as the reference.

Floating-point operators carry the `contract` flag: a product and a sum may fuse into one
instruction, which rounds once instead of twice.
"""

from __future__ import annotations

import operator

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from mcattn.kernels.jit import jit

W = 8

_FLAGS = ("contract",)
_I32, _I64, _F64 = ir.IntType(32), ir.IntType(64), ir.DoubleType()


class Vector(types.Type):
    """Numba type of W numbers of one kind: "f" doubles, "i" 64-bit integers."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(name=f"Vector({kind}{W})")

    @property
    def llvm(self) -> ir.VectorType:
        return ir.VectorType(_F64 if self.kind == "f" else _I64, W)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, vector.llvm)


FLOATS, INTS = Vector("f"), Vector("i")
_SCALAR = {"f": types.float64, "i": types.int64}
_ANY = ((types.VarArg(types.Any),),)


def _splat(builder, scalar):
    vector = ir.VectorType(scalar.type, W)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(_I32, 0))
    lanes = ir.Constant(ir.VectorType(_I32, W), [0] * W)
    return builder.shuffle_vector(first, undefined, lanes)


def _compiled(function, typing, kinds=_ANY):
    """Decorate the code generator of a function or operator.

    Numba's `overload` would compile every use for other types as a function of its own, which
    took more than half of the time until the first sweep.

    Parameters
    ----------
    typing : from types of the arguments to a signature; None where the function means another.
    kinds : types of arguments that the generator is for.
    """

    class Form(AbstractTemplate):
        key = function

        def generic(self, args, kws):
            return typing(*args)

    infer_global(function)(Form)

    def register(generator):
        for kind in kinds:
            lower_builtin(function, *kind)(generator)
        return generator

    return register


# ---------------------------------------------------------------- memory


def load(array, i):
    """Elements i .. i + W - 1 of a one-dimensional array."""
    return array[i : i + W].copy()


def store(array, i, x):
    """Write a vector to elements i .. i + W - 1 of a one-dimensional array."""
    array[i : i + W] = x


def load_singles(array, i):
    """Like `load`, from an array of single-precision numbers."""
    return array[i : i + W].astype(np.float64)


def _pointer(context, builder, array_type, array, i, vector):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [i]), vector.llvm.as_pointer())


def _of_array(array):
    return FLOATS if array.dtype == types.float64 else INTS


@_compiled(load, lambda array, i: signature(_of_array(array), array, types.int64))
def _load(context, builder, sig, args):
    return builder.load(_pointer(context, builder, sig.args[0], *args, sig.return_type), align=8)


@_compiled(store, lambda array, i, x: signature(types.void, array, types.int64, _of_array(array)))
def _store(context, builder, sig, args):
    pointer = _pointer(context, builder, sig.args[0], *args[:2], sig.args[2])
    builder.store(args[2], pointer, align=8)
    return context.get_dummy_value()


@_compiled(load_singles, lambda array, i: signature(FLOATS, array, types.int64))
def _load_singles(context, builder, sig, args):
    data = context.make_array(sig.args[0])(context, builder, args[0]).data
    singles = ir.VectorType(ir.FloatType(), W).as_pointer()
    pointer = builder.bitcast(builder.gep(data, [args[1]]), singles)
    return builder.fpext(builder.load(pointer, align=4), FLOATS.llvm)


# ---------------------------------------------------------------- operators


def _binary(op, of_floats, of_ints):
    """Give vectors (and vectors with scalars) the operator `op`."""

    def typed(x, y):
        vector = x if isinstance(x, Vector) else y
        if not isinstance(vector, Vector) or (of_floats, of_ints)[vector.kind == "i"] is None:
            return None
        sides = [v if isinstance(v, Vector) else _SCALAR[vector.kind] for v in (x, y)]
        return signature(vector, *sides)

    @_compiled(op, typed, ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)))
    def lowered(context, builder, sig, args):
        x, y = (
            value if isinstance(side, Vector) else _splat(builder, value)
            for value, side in zip(args, sig.args, strict=True)
        )
        return (of_floats if sig.return_type.kind == "f" else of_ints)(builder, x, y)


def _float_op(name):
    return lambda builder, x, y: getattr(builder, name)(x, y, flags=_FLAGS)


def _int_op(name):
    return lambda builder, x, y: getattr(builder, name)(x, y)


_binary(operator.add, _float_op("fadd"), _int_op("add"))
_binary(operator.sub, _float_op("fsub"), _int_op("sub"))
_binary(operator.mul, _float_op("fmul"), None)
_binary(operator.truediv, _float_op("fdiv"), None)
_binary(operator.xor, None, _int_op("xor"))
_binary(operator.or_, None, _int_op("or_"))
_binary(operator.and_, None, _int_op("and_"))
_binary(operator.lshift, None, _int_op("shl"))


# ---------------------------------------------------------------- bits

_ALL_BUT_SIGN = 0x7FFFFFFFFFFFFFFF


def shift_right(x, k):
    """Logical right shift of integers by k bits."""
    return (x.view(np.uint64) >> np.uint64(k)).view(np.int64)


def bits(x):
    """Doubles as the integers of their bit patterns, or back."""
    return x.view(np.int64 if x.dtype == np.float64 else np.float64)


def negative(x):
    """All bits set in the lanes where the double x is negative, none elsewhere."""
    return x.view(np.int64) >> np.int64(63)


def minimum(x, high):
    """The smaller of each lane and the scalar `high`."""
    return np.minimum(x, high)


def total(x):
    """Sum of the lanes, by halves: lane i and lane i + W/2 first."""
    while len(x) > 1:
        x = x[: len(x) // 2] + x[len(x) // 2 :]
    return x[0]


def maximum(x, low):
    """The larger of each lane and the scalar `low`."""
    return np.maximum(x, low)


@_compiled(shift_right, lambda x, k: signature(INTS, INTS, types.int64))
def _shift_right(context, builder, sig, args):
    return builder.lshr(args[0], _splat(builder, args[1]))


@_compiled(bits, lambda x: signature(INTS if x == FLOATS else FLOATS, x))
def _bits(context, builder, sig, args):
    return builder.bitcast(args[0], sig.return_type.llvm)


@_compiled(negative, lambda x: signature(INTS, FLOATS))
def _negative(context, builder, sig, args):
    pattern = builder.bitcast(args[0], INTS.llvm)
    return builder.ashr(pattern, _splat(builder, ir.Constant(_I64, 63)))


@_compiled(total, lambda x: signature(types.float64, FLOATS))
def _total(context, builder, sig, args):
    parts = [builder.extract_element(args[0], ir.Constant(_I32, i)) for i in range(W)]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [builder.fadd(parts[i], parts[half + i]) for i in range(half)]
    return parts[0]


def _bound(function, comparison):
    @_compiled(function, lambda x, limit: signature(FLOATS, FLOATS, types.float64))
    def bounded(context, builder, sig, args):
        limit = _splat(builder, args[1])
        inside = builder.fcmp_ordered(comparison, args[0], limit)
        return builder.select(inside, args[0], limit)


_bound(minimum, "<")
_bound(maximum, ">")


@jit
def keep(mask, x):
    """x in the lanes whose mask is set, +0.0 elsewhere."""
    return bits(mask & bits(x))


@jit
def blend(mask, x, y):
    """x in the lanes whose mask is set, y elsewhere.

    Done on bits: a select feeding a store becomes a masked store, which is slow on some CPUs.
    """
    old = bits(y)
    return bits(old ^ (mask & (bits(x) ^ old)))


@jit
def larger(x, y):
    """The larger of two vectors, lane by lane."""
    return blend(negative(x - y), y, x)


@jit
def distance(x, y):
    """|x - y| of two vectors, lane by lane."""
    return bits(bits(x - y) & _ALL_BUT_SIGN)


# ---------------------------------------------------------------- functions

_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer kept in the low bits
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471805599453, 2.3190468138462996e-17
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_ONE_BITS = 0x3FF0000000000000


@jit
def exp(x):
    """e^x for -700 <= x <= 700 (clamped), relative error below 1e-14.

    x = k ln 2 + f with |f| <= ln(2)/2, then a Taylor polynomial of degree 11 in f.
    """
    x = minimum(maximum(x, -700.0), 700.0)
    t = x * _LOG2E + _ROUND
    k = t - _ROUND
    f = (x - k * _LN2_HIGH) - k * _LN2_LOW
    p = f * (1 / 39916800) + 1 / 3628800
    p = p * f + 1 / 362880
    p = p * f + 1 / 40320
    p = p * f + 1 / 5040
    p = p * f + 1 / 720
    p = p * f + 1 / 120
    p = p * f + 1 / 24
    p = p * f + 1 / 6
    p = p * f + 0.5
    p = p * f + 1.0
    p = p * f + 1.0
    return bits(bits(p) + (bits(t) << 52))


@jit
def two_atanh_5(t):
    """2 atanh t by five terms: error below 2 |t|^11 / 11 / (1 - t^2)."""
    z = t * t
    p = z * (2 / 9) + 2 / 7
    p = p * z + 2 / 5
    p = p * z + 2 / 3
    p = p * z + 2.0
    return p * t


@jit
def two_atanh_15(t):
    """2 atanh t by fifteen terms: absolute error below 1e-16 for |t| <= 1/3."""
    z = t * t
    p = z * (2 / 29) + 2 / 27
    p = p * z + 2 / 25
    p = p * z + 2 / 23
    p = p * z + 2 / 21
    p = p * z + 2 / 19
    p = p * z + 2 / 17
    p = p * z + 2 / 15
    p = p * z + 2 / 13
    p = p * z + 2 / 11
    p = p * z + 2 / 9
    p = p * z + 2 / 7
    p = p * z + 2 / 5
    p = p * z + 2 / 3
    p = p * z + 2.0
    return p * t


@jit
def log(x):
    """ln x of positive normal doubles, error below 1e-15 max(1, |ln x|).

    x = 2^k f with f in [sqrt(1/2), sqrt(2)), ln f = 2 atanh((f - 1)/(f + 1)).
    """
    pattern = bits(x)
    k = shift_right(pattern - _SQRT_HALF_BITS + _ONE_BITS, 52) - 1023
    f = bits(pattern - (k << 52))
    t = (f - 1.0) / (f + 1.0)
    z = t * t
    p = z * (2 / 19) + 2 / 17
    p = p * z + 2 / 15
    p = p * z + 2 / 13
    p = p * z + 2 / 11
    p = p * z + 2 / 9
    p = p * z + 2 / 7
    p = p * z + 2 / 5
    p = p * z + 2 / 3
    p = p * z + 2.0
    exponent = bits(k + 0x4338000000000000) - _ROUND
    return exponent * _LN2_HIGH + p * t


def aligned(shape, dtype=np.float64):
    """A zeroed array that starts on a 64-byte boundary, so that no vector straddles two lines."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)
