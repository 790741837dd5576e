/* A part of opweld_attend_pairs.h: its products by vectors, where there is no matrix unit. */
#ifndef OPWELD_ATTEND_PAIRS_VECTORS_H
#define OPWELD_ATTEND_PAIRS_VECTORS_H

/* Vectors of lanes that are multiplied together: of keys, whose rows a slice has two of, and of values. */
#ifdef OPW_PAIRS_WORDS
#define OPW_PAIRS_WIDE_KEYS(rows) ((rows) <= 4 ? 2 : 1)
#define OPW_PAIRS_WIDE_VALUES(rows) ((rows) <= 4 ? 4 : 1)
#elif OPW_LANES == 16
#define OPW_PAIRS_WIDE_KEYS(rows) ((rows) <= 4 ? 2 : 1)
#define OPW_PAIRS_WIDE_VALUES(rows) OPW_PAIRS_WIDE_KEYS(rows)
#else
#define OPW_PAIRS_WIDE_KEYS(rows) 1
#define OPW_PAIRS_WIDE_VALUES(rows) 1
#endif

/* A slice that is fetched while another one is read, line by line in the order of memory: of rows of 32 words, `pitch`
 * words apart. */
typedef struct {
    const uint32_t *words;
    int64_t pitch;
} opw_pairs_next;

OPW_INLINE void opw_pairs_fetch_at(opw_pairs_next next, int64_t word) {
    opw_prefetch(next.words + word / 32 * next.pitch + word % 32);
}

/* What is read a few slices after that of keys, or of values, of number s and of a head: keys first, then values, then
 * the next chunk. What is there already is fetched where there is nothing else. */
OPW_INLINE opw_pairs_next opw_pairs_after(const opw_pairs_chunk *own, bool values, int64_t s, int64_t head, int64_t block) {
    int64_t count = (own->last - own->first) * own->heads, at = (s - own->first) * own->heads + head + OPW_PAIRS_AHEAD;
    if (at >= count) {
        if (!values) {
            values = true, at -= count;
            if (at >= count) at = 0;
        } else {
            at -= count, s = at / own->heads;
            const uint32_t *then = own->then[s < OPW_PAIRS_AHEAD ? s : 0];
            return then ? (opw_pairs_next){then + at % own->heads * own->keys_apart, block}
                        : (opw_pairs_next){own->values[own->first], 32};
        }
    }
    s = own->first + at / own->heads, head = at % own->heads;
    return values ? (opw_pairs_next){own->values[s] + head * own->values_apart, 32}
                  : (opw_pairs_next){own->keys[s] + head * own->keys_apart, block};
}

/* Whether slices are fetched. Zen 4, which these instructions mean, reads blocks that lie one behind the other faster
 * than what it is told to fetch. */
OPW_INLINE bool opw_pairs_fetches(const opw_pairs_chunk *own, int rows) {
    if (rows >= OPW_PAIRS_FEW) return false;
#ifdef OPW_PAIRS_WORDS
    for (int64_t s = own->first; s + 1 < own->last; s++)
        if (own->keys[s + 1] != own->keys[s] + own->heads * own->keys_apart) return true;
    return false;
#else
    (void)own;
    return true;
#endif
}

/* Adds the products of `steps` words of rows, whose rows are `pitch` numbers apart, and of `wide` vectors of lanes, whose
 * words are `stride` apart: to sums of [rows][wide] vectors. What is at `word` of the slice that is fetched is as far from
 * its beginning as y is from that of its own. */
OPW_INLINE void opw_pairs_dot(int rows, int wide, const opw_pairs_rounded *x, int64_t pitch, const uint32_t *y,
                              int64_t stride, int steps, bool fetch, opw_pairs_next next, int64_t word, int64_t apart,
                              vf32 *sums) {
#ifdef OPW_PAIRS_WORDS
    for (int k = 0; k < steps; k++) {
        vi32 words[4];
        _Pragma("clang loop unroll(full)") for (int v = 0; v < wide; v++) {
            if (fetch) opw_pairs_fetch_at(next, word + k * apart + v * OPW_LANES);
            words[v] = (vi32)opw_load_u32(y + k * stride + v * OPW_LANES);
        }
        _Pragma("clang loop unroll(full)") for (int r = 0; r < rows; r++) {
            int32_t two;
            memcpy(&two, x + r * pitch + 2 * k, sizeof two);
            _Pragma("clang loop unroll(full)") for (int v = 0; v < wide; v++)
                sums[r * wide + v] = opw_dot2_add_i32(sums[r * wide + v], opw_splat_i32(two), words[v]);
        }
    }
#else
    vf32 low[2 * OPW_PAIRS_ROWS], high[2 * OPW_PAIRS_ROWS];
    _Pragma("clang loop unroll(full)") for (int i = 0; i < rows * wide; i++) low[i] = high[i] = (vf32){0};
    for (int k = 0; k < steps; k++) {
        vf32 first[2], second[2];
        if (fetch && word % 16 == 0) {
            opw_pairs_fetch_at(next, word + k * apart);
            if (wide * OPW_LANES > 16) opw_pairs_fetch_at(next, word + k * apart + 16);
        }
        _Pragma("clang loop unroll(full)") for (int v = 0; v < wide; v++) {
            vu32 words = opw_load_u32(y + k * stride + v * OPW_LANES);
            first[v] = (vf32)(words << 16);
            second[v] = (vf32)(words & 0xffff0000);
        }
        _Pragma("clang loop unroll(full)") for (int r = 0; r < rows; r++) {
            vf32 one = opw_splat_f32(x[r * pitch + 2 * k]), other = opw_splat_f32(x[r * pitch + 2 * k + 1]);
            _Pragma("clang loop unroll(full)") for (int v = 0; v < wide; v++) {
                low[r * wide + v] = one * first[v] + low[r * wide + v];
                high[r * wide + v] = other * second[v] + high[r * wide + v];
            }
        }
    }
    _Pragma("clang loop unroll(full)") for (int i = 0; i < rows * wide; i++) {
        vf32 both = low[i] + high[i];
        sums[i] += both;
    }
#endif
}

/* Scores of a slice of a head. */
OPW_INLINE void opw_pairs_scores_at(int rows, const opw_pairs_rounded *queries, int64_t words, int steps,
                                    const uint32_t *keys, int64_t block, bool fetch, opw_pairs_next next, float *scores) {
    int wide = OPW_PAIRS_WIDE_KEYS(rows);
    for (int64_t k = 0; k < OPW_PAIRS_KEYS; k += wide * OPW_LANES) {
        vf32 sums[2 * OPW_PAIRS_ROWS] = {0};
        for (int64_t w = 0; w < words; w += steps)
            opw_pairs_dot(rows, wide, queries + 2 * w, 2 * words, keys + w * block + k, block, steps, fetch, next,
                          w * OPW_PAIRS_KEYS + k, OPW_PAIRS_KEYS, sums);
        _Pragma("clang loop unroll(full)") for (int i = 0; i < rows * wide; i++)
            opw_store_f32(scores + i / wide * OPW_CHUNK + k + i % wide * OPW_LANES, sums[i]);
    }
}

OPW_INLINE void opw_pairs_scores_of(const opw_pairs_chunk *own, int rows, const opw_pairs_rounded *queries,
                                    int64_t words, int steps, int64_t block, float *scores) {
    bool fetch = opw_pairs_fetches(own, rows);
    for (int64_t s = own->first; s < own->last; s++)
        for (int64_t head = 0; head < own->heads; head++) {
            opw_pairs_next next = opw_pairs_after(own, false, s, head, block);
            const opw_pairs_rounded *x = queries + head * rows * 2 * words;
            const uint32_t *keys = own->keys[s] + head * own->keys_apart;
            float *found = scores + head * rows * OPW_CHUNK + s * OPW_PAIRS_KEYS;
            if (fetch) opw_pairs_scores_at(rows, x, words, steps, keys, block, true, next, found);
            else opw_pairs_scores_at(rows, x, words, steps, keys, block, false, next, found);
        }
}

/* Adds a slice's values of features [d, d + wide * OPW_LANES) to sums. */
OPW_INLINE void opw_pairs_features_at(int rows, int wide, const opw_pairs_rounded *weights, const uint32_t *values,
                                      int64_t padded, int64_t d, bool fetch, opw_pairs_next next, float *sums,
                                      int64_t part) {
    vf32 own[4 * OPW_PAIRS_ROWS];
    _Pragma("clang loop unroll(full)") for (int i = 0; i < rows * wide; i++)
        own[i] = opw_load_f32(sums + i / wide * part + d + i % wide * OPW_LANES);
    opw_pairs_dot(rows, wide, weights, OPW_CHUNK, values + d, padded, OPW_PAIRS_STEPS, fetch, next, d, padded, own);
    _Pragma("clang loop unroll(full)") for (int i = 0; i < rows * wide; i++)
        opw_store_f32(sums + i / wide * part + d + i % wide * OPW_LANES, own[i]);
}

/* Adds a slice's values of a head. */
OPW_INLINE void opw_pairs_values_at(int rows, const opw_pairs_rounded *weights, const uint32_t *values, int64_t padded,
                                    bool fetch, opw_pairs_next next, float *sums, int64_t part) {
    int wide = OPW_PAIRS_WIDE_VALUES(rows);
    int64_t d = 0;
    for (; d + wide * OPW_LANES <= padded; d += wide * OPW_LANES)
        opw_pairs_features_at(rows, wide, weights, values, padded, d, fetch, next, sums, part);
    for (; d < padded; d += OPW_LANES)
        opw_pairs_features_at(rows, 1, weights, values, padded, d, fetch, next, sums, part);
}

/* Sums are zero before. */
OPW_INLINE void opw_pairs_values_of(const opw_pairs_chunk *own, int rows, const opw_pairs_rounded *weights,
                                    int64_t padded, int64_t block, float *sums, int64_t part) {
    bool fetch = opw_pairs_fetches(own, rows);
    for (int64_t s = own->first; s < own->last; s++)
        for (int64_t head = 0; head < own->heads; head++) {
            opw_pairs_next next = opw_pairs_after(own, true, s, head, block);
            const opw_pairs_rounded *x = weights + head * rows * OPW_CHUNK + s * OPW_PAIRS_KEYS;
            const uint32_t *values = opw_pairs_values_in(own, s, head, padded);
            float *into = sums + head * rows * part;
            if (fetch) opw_pairs_values_at(rows, x, values, padded, true, next, into, part);
            else opw_pairs_values_at(rows, x, values, padded, false, next, into, part);
        }
}

/* By tiles of as many rows as registers have room for. */
#define OPW_PAIRS_BY_ROWS(NAME, ...)                                                                                   \
    switch (rows) {                                                                                                    \
    case 1: NAME(own, 1, __VA_ARGS__); break;                                                                          \
    case 2: NAME(own, 2, __VA_ARGS__); break;                                                                          \
    case 3: NAME(own, 3, __VA_ARGS__); break;                                                                          \
    case 4: NAME(own, 4, __VA_ARGS__); break;                                                                          \
    default: NAME(own, OPW_PAIRS_ROWS, __VA_ARGS__);                                                                   \
    }

OPW_INLINE void opw_pairs_scores(opw_pairs_unit *m, const opw_pairs_chunk *own, int rows,
                                 const opw_pairs_rounded *queries, int64_t words, int steps, int64_t block, float *scores) {
    (void)m;
    OPW_PAIRS_BY_ROWS(opw_pairs_scores_of, queries, words, steps, block, scores)
}

OPW_INLINE void opw_pairs_values(opw_pairs_unit *m, const opw_pairs_chunk *own, int rows, const opw_pairs_rounded *weights,
                                 int64_t padded, int64_t block, float *sums, int64_t part) {
    (void)m;
    OPW_PAIRS_BY_ROWS(opw_pairs_values_of, weights, padded, block, sums, part)
}

#endif
