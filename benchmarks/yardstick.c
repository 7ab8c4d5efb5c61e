/* What the kernels of mcattn are measured against: single-score Metropolis of the population
 * action (softmax, uniform tokens) in C, three times over the same visits and steps.
 *
 *   scalar  one replica after another, exp and log of the C library
 *   plain   replicas in lockstep in vectors of 4 doubles; a step of its own for each update
 *   table   the same with the step's size from a table of each replica, redrawn every sweep
 *
 * In lockstep a replica is the last index; `scalar` keeps each replica's numbers together. An
 * update is cut into three short loops over arrays that stay in the first cache: one long loop
 * body would leave the processor waiting for divisions. Built and called by yardstick.py. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

enum { LANES = 4, SIZES = 8 };
typedef double vec __attribute__((vector_size(8 * LANES)));
typedef int64_t ivec __attribute__((vector_size(8 * LANES)));
typedef uint64_t uvec __attribute__((vector_size(8 * LANES)));
#define HOT static inline __attribute__((always_inline))
#define AT(array, i) (*(vec *)((array) + (i)))

typedef struct {
  long L, R, visits;    /* positions, replicas, visits to a row's columns */
  const int64_t *visit; /* columns, as offsets from the copied one */
  double pairs, gain, eps, prior, step; /* V (V - 1) / 2, and the couplings of the action */
  double *S, *E, *Z, *Q, *I, *m, *q;    /* scores, e^S, row sums of e^S, e^2S, 1/Z; the two sums */
  double *sum_m, *sum_q, *accepted;     /* of each replica, over all sweeps done */
  uint64_t *stream;                     /* four words of each replica */
  double *size, *up, *down;             /* |d|, e^|d|, e^-|d|: SIZES for each replica */
  double *work;
} Block;

static double *numbers(long count) {
  size_t bytes = (size_t)(count * 8 + 63) / 64 * 64;
  return memset(aligned_alloc(64, bytes), 0, bytes);
}

HOT uint64_t splitmix(uint64_t *state) {
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* A block whose replicas all start from zero scores, with `gap` on the copied positions. */
Block *make(long L, long R, long visits, const int64_t *visit, double pairs, double gain,
            double eps, double prior, double step, double gap, uint64_t seed, int scalar) {
  Block *b = malloc(sizeof *b);
  *b = (Block){.L = L, .R = R, .visits = visits, .visit = visit, .pairs = pairs, .gain = gain,
               .eps = eps, .prior = prior, .step = step};
  b->S = numbers(L * L * R), b->E = numbers(L * L * R), b->Z = numbers(L * R);
  b->Q = numbers(L * R), b->I = numbers(L * R), b->m = numbers(R), b->q = numbers(R);
  b->sum_m = numbers(R), b->sum_q = numbers(R), b->accepted = numbers(R);
  b->stream = (uint64_t *)numbers(4 * R), b->work = numbers(9 * R);
  b->size = numbers(SIZES * R), b->up = numbers(SIZES * R), b->down = numbers(SIZES * R);
  for (long i = 0; i < 4 * R; i++) b->stream[i] = splitmix(&seed);
  for (long a = 0; a < L; a++)
    for (long r = 0; r < R; r++) {
      long site = a * L + (a + L - 1) % L;
      b->S[scalar ? r * L * L + site : site * R + r] = gap;
    }
  return b;
}

void discard(Block *b) {
  double *all[] = {b->S, b->E, b->Z, b->Q, b->I, b->m, b->q, b->sum_m, b->sum_q, b->accepted,
                   (double *)b->stream, b->work, b->size, b->up, b->down};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  free(b);
}

/* All caches from the scores; `site` and `replica` are the strides of the two layouts. */
static void recompute(Block *b, long site, long row, long replica, long row_replica) {
  long L = b->L;
  for (long r = 0; r < b->R; r++) {
    double m = 0, q = 0;
    for (long a = 0; a < L; a++) {
      double z = 0, zz = 0;
      for (long c = 0; c < L; c++) {
        long i = (a * L + c) * site + r * replica;
        double e = b->E[i] = exp(b->S[i]);
        z += e, zz += e * e;
      }
      long i = a * row + r * row_replica;
      b->Z[i] = z, b->Q[i] = zz, b->I[i] = 1 / z;
      m += b->E[(a * L + (a + L - 1) % L) * site + r * replica] / z, q += zz / (z * z);
    }
    b->m[r] = m / L, b->q[r] = q / L;
  }
}

static void add_up(Block *b) {
  for (long r = 0; r < b->R; r++) b->sum_m[r] += b->m[r], b->sum_q[r] += b->q[r];
}

/* ---------------------------------------------------------------- scalar */

HOT double uniform(uint64_t *w) {
  uint64_t out = w[0] + w[3], t = w[1] << 17;
  w[2] ^= w[0], w[3] ^= w[1], w[1] ^= w[2], w[0] ^= w[3], w[2] ^= t;
  w[3] = w[3] << 45 | w[3] >> 19;
  return (out >> 12) * 0x1p-52;
}

HOT double log_weight(const Block *b, double m, double q) {
  return b->gain * m * m / (q + b->eps) - b->pairs * log(q + b->eps);
}

static void scalar_sweep(Block *b, long r) {
  long L = b->L, taken = 0;
  double *S = b->S + r * L * L, *E = b->E + r * L * L, *Z = b->Z + r * L, *Q = b->Q + r * L;
  uint64_t *w = b->stream + 4 * r;
  double m = b->m[r], q = b->q[r], now = log_weight(b, m, q);
  for (long a = 0; a < L; a++) {
    long copy = (a + L - 1) % L;
    for (long v = 0; v < b->visits; v++) {
      long col = (copy + b->visit[v]) % L, i = a * L + col, c = a * L + copy;
      double s = S[i] + b->step * (2 * uniform(w) - 1), e = exp(s);
      double z = Z[a] + e - E[i], zz = Q[a] + e * e - E[i] * E[i], n = col == copy ? e : E[c];
      double m1 = m + (n / z - E[c] / Z[a]) / L;
      double q1 = q + (zz / (z * z) - Q[a] / (Z[a] * Z[a])) / L, then = log_weight(b, m1, q1);
      if (uniform(w) < exp(then - now - b->prior * (s * s - S[i] * S[i]))) {
        S[i] = s, E[i] = e, Z[a] = z, Q[a] = zz, m = m1, q = q1, now = then, taken++;
      }
    }
  }
  b->m[r] = m, b->q[r] = q, b->accepted[r] += taken;
}

void scalar(Block *b, long sweeps) {
  recompute(b, 1, 1, b->L * b->L, b->L);
  for (long t = 0; t < sweeps; t++) {
    for (long r = 0; r < b->R; r++) scalar_sweep(b, r);
    add_up(b);
  }
}

/* ---------------------------------------------------------------- in lockstep */

/* x where the sign bit of `where` is set, else y. */
HOT vec choose(ivec where, vec x, vec y) {
#ifdef __AVX2__
  return (vec)_mm256_blendv_pd((__m256d)y, (__m256d)x, (__m256d)where);
#else
  where >>= 63;
  return (vec)((where & (ivec)x) | (~where & (ivec)y));
#endif
}

HOT vec all(double x) { return (vec){x, x, x, x}; }

HOT vec clamped(vec x) {
#ifdef __AVX2__
  return (vec)_mm256_min_pd(_mm256_max_pd((__m256d)x, (__m256d)all(-700)), (__m256d)all(700));
#else
  x = choose((ivec)(x + 700), all(-700), x);
  return choose((ivec)(700 - x), all(700), x);
#endif
}

/* e^x, x clamped to +-700: 2^k times a Taylor polynomial of degree 11 of the rest. */
HOT vec exponential(vec x) {
  static const double one_over[] = {1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320,
                                    1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, .5, 1, 1};
  const double round = 0x1.8p52;
  x = clamped(x);
  vec t = x * 1.4426950408889634 + round, k = t - round;
  vec f = x - k * 0.6931471805599453 - k * 2.3190468138462996e-17, p = all(one_over[0]);
#pragma GCC unroll 11
  for (int i = 1; i < 12; i++) p = p * f + one_over[i];
  return (vec)((ivec)p + ((ivec)t << 52));
}

/* The next random bits of replicas r...; word k of a replica stands at stream[k R + r]. */
HOT uvec draw(uint64_t *stream, long R, long r) {
  uvec *w[4];
  for (int k = 0; k < 4; k++) w[k] = (uvec *)(stream + k * R + r);
  uvec s0 = *w[0], s1 = *w[1], s2 = *w[2], s3 = *w[3], out = s0 + s3, t = s1 << 17;
  s2 ^= s0, s3 ^= s1, s1 ^= s2, s0 ^= s3, s2 ^= t;
  *w[0] = s0, *w[1] = s1, *w[2] = s2, *w[3] = s3 << 45 | s3 >> 19;
  return out;
}

HOT vec one_to_two(uvec x) { return (vec)(x >> 12 | 0x3ff0000000000000u); }

static void draw_sizes(Block *b) {
  for (long k = 0; k < SIZES * b->R; k += b->R)
    for (long r = 0; r < b->R; r += LANES) {
      vec d = b->step * (one_to_two(draw(b->stream, b->R, r)) - 1);
      AT(b->size, k + r) = d;
      AT(b->up, k + r) = exponential(d), AT(b->down, k + r) = exponential(-d);
    }
}

/* Offer all replicas a step of score (a, copy + offset); number `k` of the table, if there is one. */
HOT void update(Block *b, long a, long copy, long offset, long k, int table) {
  const long L = b->L, R = b->R;
  const double share = 1. / L, is_copy = offset == 0;
  const long col = copy + offset < L ? copy + offset : copy + offset - L;
  double *restrict S = b->S + (a * L + col) * R, *restrict E = b->E + (a * L + col) * R;
  double *restrict Z = b->Z + a * R, *restrict Q = b->Q + a * R, *restrict I = b->I + a * R;
  double *restrict m = b->m, *restrict q = b->q, *restrict n = b->E + (a * L + copy) * R;
  double *restrict step = b->work, *restrict e = step + R, *restrict z = e + R;
  double *restrict zz = z + R, *restrict iz = zz + R, *restrict m1 = iz + R;
  double *restrict q1 = m1 + R, *restrict change = q1 + R, *restrict luck = change + R;
  for (long r = 0; r < R; r += LANES) {
    uvec x = draw(b->stream, R, r);
    if (table) {
      ivec sign = (ivec)(x << 52) & INT64_MIN;
      AT(step, r) = (vec)((ivec)AT(b->size, k * R + r) ^ sign);
      AT(e, r) = AT(E, r) * choose(sign, AT(b->down, k * R + r), AT(b->up, k * R + r));
    } else {
      AT(step, r) = 2 * b->step * (one_to_two(x) - 1.5);
      AT(e, r) = exponential(AT(S, r) + AT(step, r));
      x = draw(b->stream, R, r);
    }
    AT(luck, r) = one_to_two(x);
  }
  for (long r = 0; r < R; r += LANES) {
    vec d = AT(step, r), de = AT(e, r) - AT(E, r), i0 = AT(I, r);
    vec z1 = AT(Z, r) + de, qq = AT(Q, r) + de * (AT(e, r) + AT(E, r)), i1 = 1 / z1;
    vec mm = AT(m, r) + ((AT(n, r) + de * is_copy) * i1 - AT(n, r) * i0) * share;
    vec qn = AT(q, r) + (qq * i1 * i1 - AT(Q, r) * i0 * i0) * share;
    /* One division serves m1^2/d1 - m0^2/d0 and ln(d1/d0) = 2 atanh((d1 - d0)/(d1 + d0)). */
    vec d0 = AT(q, r) + b->eps, d1 = qn + b->eps, both = d0 * d1, w = 1 / (both * (d0 + d1));
    vec t = (d1 - d0) * (w * both), tt = t * t;
    vec series = (((2. / 9 * tt + 2. / 7) * tt + 2. / 5) * tt + 2. / 3) * tt + 2;
    AT(change, r) = b->gain * ((mm * mm * d0 - AT(m, r) * AT(m, r) * d1) * (w * (d0 + d1))) -
                    b->prior * d * (d + 2 * AT(S, r)) - b->pairs * (series * t);
    AT(z, r) = z1, AT(zz, r) = qq, AT(iz, r) = i1, AT(m1, r) = mm, AT(q1, r) = qn;
  }
  for (long r = 0; r < R; r += LANES) {
    ivec ok = (ivec)(AT(luck, r) - 1 - exponential(AT(change, r)));
    AT(S, r) = choose(ok, AT(S, r) + AT(step, r), AT(S, r)), AT(E, r) = choose(ok, AT(e, r), AT(E, r));
    AT(Z, r) = choose(ok, AT(z, r), AT(Z, r)), AT(Q, r) = choose(ok, AT(zz, r), AT(Q, r));
    AT(I, r) = choose(ok, AT(iz, r), AT(I, r)), AT(m, r) = choose(ok, AT(m1, r), AT(m, r));
    AT(q, r) = choose(ok, AT(q1, r), AT(q, r));
    AT(b->accepted, r) += choose(ok, all(1), all(0));
  }
}

HOT void lockstep(Block *b, long sweeps, int table) {
  recompute(b, b->R, b->R, 1, 1);
  for (long t = 0; t < sweeps; t++) {
    long done = 0;
    if (table) draw_sizes(b);
    for (long a = 0; a < b->L; a++)
      for (long v = 0; v < b->visits; v++)
        update(b, a, a ? a - 1 : b->L - 1, b->visit[v], done++ % SIZES, table);
    add_up(b);
  }
}

void plain(Block *b, long sweeps) { lockstep(b, sweeps, 0); }
void table(Block *b, long sweeps) { lockstep(b, sweeps, 1); }
