"""Change of the log weight -F when one update moves the sums (m, q, tau, r): incremental form.

mcattn.action holds the formulas; here stands what they become between two patterns, and the
tests compare the two. Arrays: `sums` and `new`, shape (4, lane), are the sums before and after
the update; `change`, shape (lane,), receives the data and bias parts of -dF on top of what it
holds; the rows of `coupling`, shape (COUPLINGS, lane), describe the state of each lane. The bias
acts on u = ALONG_M m + ALONG_TAU tau, or on |u|; `uniform_softmax` knows the one on m alone.
"""

from mcattn.kernels.jit import jit
from mcattn.kernels.simd import W, bits, load, log, store, two_atanh_5, two_atanh_15

GAIN = 0  # chi P / (2 kappa)
RIDGE = 1  # kappa / (g_w P)
PRIOR = 2  # chi / (2 g_s)
BIAS = 3  # strength of the bias, halved
CENTER = 4  # centre of the bias, in u
STEP = 5  # half-width of the proposal
ALONG_M = 6
ALONG_TAU = 7
FOLD = 8  # -0.0 for a bias on |u|, 0.0 for one on u
COUPLINGS = 9


def series_terms(L, eps, attention):
    """Terms of the log series that are exact to rounding in every update; 0: no bound holds.

    For softmax one row moves q by less than 1/L, and q >= 1/L. With d = q + eps the series
    variable is t = (d1 - d0)/(d1 + d0), |t| <= 1/(2 L eps + 3) <= 1/3; for a token group
    eps is the smaller ridge / p. Linear attention has no bound and takes the full logarithm.
    """
    if attention == "linear":
        return 0
    t = 1 / (2 * L * eps + 3)
    return 5 if 2 * t**11 / 11 < 1e-16 else 15


@jit
def _log_ratio(t, d0, d1, w, terms):
    """ln(d1/d0), given t = (d1 - d0)/(d1 + d0) and w = 1/(d0 d1 (d0 + d1))."""
    if terms == 5:
        return two_atanh_5(t)
    if terms == 15:
        return two_atanh_15(t)
    return log(d1 * d1 * ((d0 + d1) * w))


@jit
def _bias(coupling, u0, u1, r):
    """Change of the bias energy between two values of u."""
    center = load(coupling[CENTER], r)
    return load(coupling[BIAS], r) * ((u1 - u0) * (u1 + u0 - center * 2.0))


@jit
def _along(coupling, m, tau, r):
    """What the bias acts on; FOLD's sign bit takes away that of u."""
    u = bits(load(coupling[ALONG_M], r) * m + load(coupling[ALONG_TAU], r) * tau)
    return bits(u ^ (u & bits(load(coupling[FOLD], r))))


@jit
def uniform_softmax(coupling, sums, new, change, V, terms):
    """Uniform tokens and tau = r = 1: one division gives both quotients and the log's argument."""
    share = (V - 1.0) / V
    count = 0.5 * V * (V - 1.0)
    for r in range(0, change.shape[0], W):
        m0, m1 = load(sums[0], r), load(new[0], r)
        eps = load(coupling[RIDGE], r) * V
        d0, d1 = load(sums[1], r) + eps, load(new[1], r) + eps
        total = d0 + d1
        both = d0 * d1
        w = 1.0 / (both * total)
        t = (d1 - d0) * (w * both)
        fit = (m1 * m1 * d0 - m0 * m0 * d1) * (w * total)
        value = load(coupling[GAIN], r) * share * fit - _bias(coupling, m0, m1, r)
        logarithm = two_atanh_5(t) if terms == 5 else two_atanh_15(t)
        store(change, r, load(change, r) + value - logarithm * count)


@jit
def uniform_linear(coupling, sums, new, change, V):
    """Uniform tokens, any row sums."""
    for r in range(0, change.shape[0], W):
        m0, m1 = load(sums[0], r), load(new[0], r)
        t0, t1 = load(sums[2], r), load(new[2], r)
        eps = load(coupling[RIDGE], r) * V
        q0, q1 = load(sums[1], r) + eps, load(new[1], r) + eps
        r0, r1 = load(sums[3], r) + eps, load(new[3], r) + eps
        wq, wr = 1.0 / (q0 * q1), 1.0 / (r0 * r1)
        copy = (m1 * m1 * q0 - m0 * m0 * q1) * wq
        mean = (t1 * t1 * r0 - t0 * t0 * r1) * wr
        fit = (copy * (V - 1.0) + mean) * (1.0 / V)
        entropy = log(q1 * q1 * wq) * (V - 1.0) + log(r1 * r1 * wr)
        u0, u1 = _along(coupling, m0, t0, r), _along(coupling, m1, t1, r)
        value = load(coupling[GAIN], r) * fit - entropy * (0.5 * V) - _bias(coupling, u0, u1, r)
        store(change, r, load(change, r) + value)


@jit
def any_tokens(coupling, sums, new, change, V, terms, p, n):
    """Any token probabilities: groups of n[k] tokens of probability p[k], O(k) per lane."""
    p2 = 0.0
    for k in range(p.shape[0]):
        p2 += n[k] * p[k] * p[k]
    for r in range(0, change.shape[0], W):
        q0, q1, ridge = load(sums[1], r), load(new[1], r), load(coupling[RIDGE], r)
        zero = q0 * 0.0
        s20, s30, t40, s21, s31, t41, entropy = zero, zero, zero, zero, zero, zero, zero
        for k in range(p.shape[0]):
            d0, d1 = q0 * p[k] + ridge, q1 * p[k] + ridge
            total, both = d0 + d1, d0 * d1
            w = 1.0 / (both * total)
            entropy = entropy + _log_ratio((d1 - d0) * (w * both), d0, d1, w, terms) * n[k]
            i0, i1 = d1 * total * w * p[k], d0 * total * w * p[k]
            s20, s21 = s20 + i0 * (n[k] * p[k]), s21 + i1 * (n[k] * p[k])
            s30, s31 = s30 + i0 * (n[k] * p[k] * p[k]), s31 + i1 * (n[k] * p[k] * p[k])
            t40, t41 = t40 + i0 * i0 * (n[k] * p[k] * p[k]), t41 + i1 * i1 * (n[k] * p[k] * p[k])
        m0, m1 = load(sums[0], r), load(new[0], r)
        t0, t1 = load(sums[2], r), load(new[2], r)
        e0, e1 = load(sums[3], r) - q0, load(new[3], r) - q1
        det0, det1 = e0 * s20 + 1.0, e1 * s21 + 1.0
        fit = _trace(m1, t1 - m1, e1 / det1, s21, s31, t41, p2)
        fit = fit - _trace(m0, t0 - m0, e0 / det0, s20, s30, t40, p2)
        entropy = entropy + log(det1 / det0)
        u0, u1 = _along(coupling, m0, t0, r), _along(coupling, m1, t1, r)
        value = load(coupling[GAIN], r) * fit - entropy * (0.5 * V) - _bias(coupling, u0, u1, r)
        store(change, r, load(change, r) + value)


@jit
def _trace(m, u, g, s2, s3, t4, p2):
    """tr(c M^-1 c^T), as in mcattn.action, from the token sums."""
    mm, mu, uu = m * m, m * u * 2.0, u * u * p2
    return mm * s2 + mu * s3 + uu * s2 - g * (mm * t4 + mu * s2 * s3 + uu * s2 * s2)
