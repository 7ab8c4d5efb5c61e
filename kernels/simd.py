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
from numba.extending import intrinsic, models, overload, register_model

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


def _splat(builder, scalar):
    vector = ir.VectorType(scalar.type, W)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(_I32, 0))
    lanes = ir.Constant(ir.VectorType(_I32, W), [0] * W)
    return builder.shuffle_vector(first, undefined, lanes)


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


@intrinsic
def _load(typingctx, array, i):
    vector = FLOATS if array.dtype == types.float64 else INTS

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], *args, vector)
        return builder.load(pointer, align=8)

    return vector(array, types.int64), codegen


@intrinsic
def _store(typingctx, array, i, x):
    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], *args[:2], signature.args[2])
        builder.store(args[2], pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, types.int64, x), codegen


@intrinsic
def _load_singles(typingctx, array, i):
    singles = ir.VectorType(ir.FloatType(), W)

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), singles.as_pointer())
        return builder.fpext(builder.load(pointer, align=4), FLOATS.llvm)

    return FLOATS(array, types.int64), codegen


overload(load_singles)(lambda array, i: lambda array, i: _load_singles(array, i))
overload(load)(lambda array, i: lambda array, i: _load(array, i))
overload(store)(lambda array, i, x: lambda array, i, x: _store(array, i, x))


# ---------------------------------------------------------------- operators


def _binary(op, of_floats, of_ints):
    """Give vectors (and vectors with scalars) the operator `op`."""

    @intrinsic
    def compiled(typingctx, x, y):
        kind = x.kind if isinstance(x, Vector) else y.kind
        make = of_floats if kind == "f" else of_ints
        if make is None:
            return None
        side = [v if isinstance(v, Vector) else _SCALAR[kind] for v in (x, y)]

        def codegen(context, builder, signature, args):
            x, y = (
                value if isinstance(kind_, Vector) else _splat(builder, value)
                for value, kind_ in zip(args, signature.args, strict=True)
            )
            return make(builder, x, y)

        return (FLOATS if kind == "f" else INTS)(*side), codegen

    @overload(op)
    def typed(x, y):
        if isinstance(x, Vector) or isinstance(y, Vector):
            return lambda x, y: compiled(x, y)
        return None


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


@intrinsic
def _shift_right(typingctx, x, k):
    return INTS(INTS, types.int64), lambda c, b, s, a: b.lshr(a[0], _splat(b, a[1]))


@intrinsic
def _bits(typingctx, x):
    other = INTS if x is FLOATS or x == FLOATS else FLOATS
    return other(x), lambda c, b, s, a: b.bitcast(a[0], other.llvm)


@intrinsic
def _negative(typingctx, x):
    def codegen(context, builder, signature, args):
        pattern = builder.bitcast(args[0], INTS.llvm)
        return builder.ashr(pattern, _splat(builder, ir.Constant(_I64, 63)))

    return INTS(FLOATS), codegen


@intrinsic
def _total(typingctx, x):
    def codegen(context, builder, signature, args):
        parts = [builder.extract_element(args[0], ir.Constant(_I32, i)) for i in range(W)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [builder.fadd(parts[i], parts[half + i]) for i in range(half)]
        return parts[0]

    return types.float64(FLOATS), codegen


def _bound(comparison):
    @intrinsic
    def compiled(typingctx, x, limit):
        def codegen(context, builder, signature, args):
            limit = _splat(builder, args[1])
            inside = builder.fcmp_ordered(comparison, args[0], limit)
            return builder.select(inside, args[0], limit)

        return FLOATS(FLOATS, types.float64), codegen

    return compiled


_minimum, _maximum = _bound("<"), _bound(">")

overload(shift_right)(lambda x, k: lambda x, k: _shift_right(x, k))
overload(bits)(lambda x: lambda x: _bits(x))
overload(negative)(lambda x: lambda x: _negative(x))
overload(total)(lambda x: lambda x: _total(x))
overload(minimum)(lambda x, high: lambda x, high: _minimum(x, high))
overload(maximum)(lambda x, low: lambda x, low: _maximum(x, low))


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
