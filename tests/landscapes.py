"""The landscapes from the definition, with V x V matrices, and random models to try them on."""

import math

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from mcattn.model import CopyModel

UNEQUAL = (0.4, 0.3, 0.2, 0.1)
LINEAR = CopyModel(L=32, V=4, attention="linear", kappa=1, g_s=1, g_w=0.1)
quick = settings(max_examples=25, deadline=None)


def scale(low, high):
    """Positive numbers spread evenly in the logarithm."""
    return st.floats(math.log(low), math.log(high)).map(math.exp)


@st.composite
def models(draw, attention):
    V = draw(st.integers(2, 6))
    weights = draw(st.none() | st.lists(scale(0.1, 1), min_size=V, max_size=V))
    tokens = None if weights is None else tuple(w / sum(weights) for w in weights)
    g_s, g_w = draw(scale(0.2, 5)), draw(scale(0.01, 1))
    return CopyModel(draw(st.integers(2, 100)), V, attention, draw(scale(0.3, 3)), g_s, g_w, tokens)


def independent_F(model, P, chi, m, q, tau, r, s2):
    """F/chi from theory.md with V x V matrices, shape of the sums; not through mcattn.action."""
    p = np.full(model.V, 1 / model.V) if model.tokens is None else np.array(model.tokens)
    pp = np.outer(p, p)
    sigma = np.diag(p) - pp
    m, q, tau, r = (np.asarray(x, dtype=float)[..., None, None] for x in (m, q, tau, r))
    G, C, ridge = q * sigma + r * pp, m * sigma + tau * pp, model.kappa / (model.g_w * P)
    M = G + ridge * np.eye(model.V)
    trace = np.trace(C @ np.linalg.solve(M, C), axis1=-2, axis2=-1)
    log_det = np.linalg.slogdet(M / ridge)[1]
    data = P / (2 * model.kappa) * (1 - trace)
    return s2 / (2 * model.g_s) + data + model.V / (2 * chi) * log_det


def independent_softmax(model, P, chi, gap):
    L, one = model.L, np.ones_like(gap)
    m = 1 / (1 + (L - 1) * np.exp(-gap))
    q = m**2 + (1 - m) ** 2 / (L - 1)
    return independent_F(model, P, chi, m, q, one, one, (L - 1) * gap**2)


def independent_linear(model, P, chi, alpha, beta):
    L = model.L
    q = alpha**2 / L + 2 * alpha * beta / L + beta**2
    tau = alpha + beta
    return independent_F(model, P, chi, alpha / L + beta, q, tau, tau**2, L * q)
