/* A part of opweld_attend.h: attention over pools of bfloat16 that lie in pairs, a word of 32 bits each: keys as
 * [size / 2][block], words of two neighbouring features of a key; values as [block / 2][padded], words of a feature of
 * two neighbouring keys. So a matrix unit (AMX) reads both as they lie.
 *
 * Queries, and weights of values, are rounded to bfloat16 as well; sums are float32. Products of `steps` words are summed
 * from nothing, those of low halves and of high ones apart, one after the other; then the sum of both is added to what is
 * there. That is what the unit does, and others do the same by vectors: they differ in subnormal numbers alone, which
 * the unit takes for zeros. AVX512-BF16 adds both products of a word to one sum, as its instruction rounds. A row's result
 * does not depend on how many rows are beside it. */
#ifndef OPWELD_ATTEND_PAIRS_H
#define OPWELD_ATTEND_PAIRS_H

#include "opweld_dot.h"
#include "opweld_matrix.h"

/* OPW_PAIRS_ROWS: queries that are computed together, where there are as many. */
#if defined(OPW_AVX512) && defined(__AMX_BF16__)
#define OPW_PAIRS_UNIT 1
#define OPW_PAIRS_ROWS OPW_MATRIX_ROWS
#define OPW_PAIRS_START(name) OPW_MATRIX name = opw_matrix_start()
typedef opw_matrix opw_pairs_unit;
#define OPW_PAIRS_WORDS 1
OPW_INLINE int opw_pairs_rows(int64_t left) { return left < OPW_PAIRS_ROWS ? (int)left : OPW_PAIRS_ROWS; }
#else
#define OPW_PAIRS_ROWS OPW_QUERY_ROWS
#define OPW_PAIRS_START(name) opw_pairs_unit name = 0
typedef char opw_pairs_unit;
#if defined(OPW_AVX512) && defined(__AVX512BF16__)
#define OPW_PAIRS_WORDS 1
#endif
OPW_INLINE int opw_pairs_rows(int64_t left) { return left >= OPW_PAIRS_ROWS ? OPW_PAIRS_ROWS : left > 4 ? 4 : (int)left; }
#endif

/* How many of so many heads are computed together for a token, `group` rows each: they lie side by side in a block, and
 * memory is read in a line. The unit takes one after the other. */
OPW_INLINE int opw_pairs_heads(int64_t left, int64_t group) {
#ifdef OPW_PAIRS_UNIT
    (void)left, (void)group;
    return 1;
#else
    int64_t most = group > 4 ? 1 : OPW_PAIRS_ROWS / group;
    return (int)(left < most ? left : most);
#endif
}

enum {
    OPW_PAIRS_KEYS = 32, /* of a slice: blocks and chunks have whole ones */
    OPW_PAIRS_STEPS = OPW_PAIRS_KEYS / 2,
    OPW_PAIRS_SLICES = OPW_CHUNK / OPW_PAIRS_KEYS,
#ifdef OPW_PAIRS_WORDS
    OPW_PAIRS_AHEAD = 4, /* slices that are fetched before they are read */
#else
    OPW_PAIRS_AHEAD = 2,
#endif
    OPW_PAIRS_FEW = 8 /* rows that wait for memory: what they read next is fetched before */
};

/* What keys and values are multiplied by. */
#ifdef OPW_PAIRS_WORDS
typedef uint16_t opw_pairs_rounded;
#define OPW_PAIRS_STORE(to, v) opw_store_bf16(to, v)
#define OPW_PAIRS_STORE_PARTIAL(to, v, n) opw_store_partial_bf16(to, v, n)
#else
typedef float opw_pairs_rounded; /* needs no widening, product by product */
#define OPW_PAIRS_STORE(to, v) opw_store_f32(to, v)
#define OPW_PAIRS_STORE_PARTIAL(to, v, n) opw_store_partial_f32(to, opw_round_bf16(v), n)
#endif

/* Temporary memory, for OPW_PAIRS_ROWS rows. */
typedef struct {
    opw_pairs_rounded *queries; /* [rows][size] */
    float *scores;              /* [rows][OPW_CHUNK] */
    opw_pairs_rounded *weights; /* [rows][OPW_CHUNK] */
    float *sums;                /* [rows], parts */
    uint16_t *copy;             /* a slice of values */
} opw_pairs_room;

/* The slices [first, last) of a chunk, whose other ones no row sees: words of keys, `block` a row, and of values, of the
 * first of `heads`; those of the next one are `apart` words behind. Rows see keys [low, high) of the chunk. `then` are the
 * first slices of keys that are read after it, as many as are there. Values of keys [seen, end) are multiplied by weights;
 * `copy` has room for a slice of them. */
typedef struct {
    int64_t first, last, low[OPW_PAIRS_ROWS], high[OPW_PAIRS_ROWS], seen, end, heads, keys_apart, values_apart;
    const uint32_t *keys[OPW_PAIRS_SLICES], *values[OPW_PAIRS_SLICES], *then[OPW_PAIRS_AHEAD];
    uint32_t *copy;
} opw_pairs_chunk;

/* The most words that a register of the unit has, so that all products are of as many. */
OPW_INLINE int opw_pairs_steps(int64_t words) {
    int steps = words < OPW_PAIRS_STEPS ? (int)words : OPW_PAIRS_STEPS;
    while (words % steps) steps--;
    return steps;
}

OPW_INLINE void opw_pairs_fetch(const uint32_t *words, int64_t rows, int64_t width, int64_t pitch) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i += 16) opw_prefetch(words + r * pitch + i);
}

/* A slice of a head's values with nothing for keys other than [low, high), which may be anything. */
static __attribute__((noinline, unused)) const uint32_t *opw_pairs_masked(const uint32_t *values, int64_t low, int64_t high,
                                                                         int64_t padded, uint32_t *copy) {
    for (int64_t w = 0; w < OPW_PAIRS_STEPS; w++) {
        int64_t k = 2 * w;
        uint32_t kept = (k >= low && k < high ? 0xffff : 0) | (k + 1 >= low && k + 1 < high ? 0xffff0000 : 0);
        for (int64_t d = 0; d < padded; d += OPW_LANES)
            opw_store_u32(copy + w * padded + d, opw_load_u32(values + w * padded + d) & kept);
    }
    return copy;
}

OPW_INLINE const uint32_t *opw_pairs_values_in(const opw_pairs_chunk *own, int64_t s, int64_t head, int64_t padded) {
    const uint32_t *values = own->values[s] + head * own->values_apart;
    int64_t low = own->seen - s * OPW_PAIRS_KEYS, high = own->end - s * OPW_PAIRS_KEYS;
    return low <= 0 && high >= OPW_PAIRS_KEYS ? values : opw_pairs_masked(values, low, high, padded, own->copy);
}

#ifdef OPW_PAIRS_UNIT
#define OPW_PAIRS_SCORES(LOW, HIGH, slice)                                                                             \
    do {                                                                                                               \
        opw_matrix_zero(m, LOW);                                                                                       \
        opw_matrix_zero(m, HIGH);                                                                                      \
        for (int64_t w = 0; w < words; w += steps) {                                                                   \
            opw_matrix_load(m, 4, queries + w, words);                                                                 \
            opw_matrix_load(m, 5, own->keys[slice] + w * block, block);                                                \
            opw_matrix_dot2(m, LOW, 4, 5);                                                                             \
            opw_matrix_load(m, 6, own->keys[slice] + w * block + OPW_MATRIX_ROWS, block);                              \
            opw_matrix_dot2(m, HIGH, 4, 6);                                                                            \
        }                                                                                                              \
        opw_matrix_store(m, LOW, scores + (slice) * OPW_PAIRS_KEYS, OPW_CHUNK);                                        \
        opw_matrix_store(m, HIGH, scores + (slice) * OPW_PAIRS_KEYS + OPW_MATRIX_ROWS, OPW_CHUNK);                     \
    } while (0)

/* Scores of rows, of [rows][words] queries, words of two. Slices take turns at registers. */
OPW_INLINE void opw_pairs_scores(opw_pairs_unit *m, const opw_pairs_chunk *own, int rows, const uint16_t *rounded,
                                 int64_t words, int steps, int64_t block, float *scores) {
    const uint32_t *queries = (const uint32_t *)(const void *)rounded;
    opw_matrix_shape(m, 1, 4, rows, steps);
    for (int64_t s = own->first; s < own->last; s++) {
        if (rows < OPW_PAIRS_FEW && s + 1 < own->last)
            opw_pairs_fetch(own->keys[s + 1], words, OPW_PAIRS_KEYS, block);
        if (s % 2) OPW_PAIRS_SCORES(2, 3, s);
        else OPW_PAIRS_SCORES(0, 1, s);
    }
}

/* Sums of values, weighted by [rows][OPW_CHUNK / 2] words; sums are `part` floats apart. */
OPW_INLINE void opw_pairs_values(opw_pairs_unit *m, const opw_pairs_chunk *own, int rows, const uint16_t *rounded,
                                 int64_t padded, int64_t block, float *sums, int64_t part) {
    const uint32_t *weights = (const uint32_t *)(const void *)rounded;
    (void)block;
    opw_matrix_shape(m, 1, 4, rows, OPW_PAIRS_STEPS);
    for (int64_t d = 0; d < padded; d += 4 * OPW_LANES) {
        int64_t left = (padded - d) / OPW_LANES;
        opw_matrix_zero(m, 0);
        opw_matrix_zero(m, 1);
        opw_matrix_zero(m, 2);
        opw_matrix_zero(m, 3);
        for (int64_t s = own->first; s < own->last; s++) {
            const uint32_t *values = opw_pairs_values_in(own, s, 0, padded) + d;
            if (rows < OPW_PAIRS_FEW && s + 1 < own->last)
                opw_pairs_fetch(own->values[s + 1] + d, OPW_PAIRS_STEPS, OPW_LANES * (left < 4 ? left : 4), padded);
            opw_matrix_load(m, 4, weights + s * OPW_PAIRS_STEPS, OPW_CHUNK / 2);
            opw_matrix_load(m, 5, values, padded);
            opw_matrix_dot2(m, 0, 4, 5);
            if (left > 1) {
                opw_matrix_load(m, 6, values + OPW_LANES, padded);
                opw_matrix_dot2(m, 1, 4, 6);
            }
            if (left > 2) {
                opw_matrix_load(m, 7, values + 2 * OPW_LANES, padded);
                opw_matrix_dot2(m, 2, 4, 7);
            }
            if (left > 3) {
                opw_matrix_load(m, 5, values + 3 * OPW_LANES, padded);
                opw_matrix_dot2(m, 3, 4, 5);
            }
        }
        opw_matrix_store(m, 0, sums + d, part);
        if (left > 1) opw_matrix_store(m, 1, sums + d + OPW_LANES, part);
        if (left > 2) opw_matrix_store(m, 2, sums + d + 2 * OPW_LANES, part);
        if (left > 3) opw_matrix_store(m, 3, sums + d + 3 * OPW_LANES, part);
    }
}
#else
#include "opweld_attend_pairs_vectors.h"
#endif

/* Scores of a slice with those of keys [low, high) capped, and minus infinity for others; the larger of `most` and them. */
OPW_INLINE vf32 opw_pairs_seen(float *scores, int64_t low, int64_t high, float cap, vf32 most) {
    for (int64_t k = 0; k < OPW_PAIRS_KEYS; k += OPW_LANES) {
        vf32 score = opw_load_f32(scores + k);
        if (cap != 0) score = opw_tanh_f32(score / opw_splat_f32(cap)) * opw_splat_f32(cap);
        vi32 seen = ~opw_first_lanes(low - k < 0 ? 0 : low - k > OPW_LANES ? OPW_LANES : low - k) &
                    opw_first_lanes(high - k < 0 ? 0 : high - k > OPW_LANES ? OPW_LANES : high - k);
        score = opw_select_f32(seen, score, opw_splat_f32(-__builtin_inff()));
        opw_store_f32(scores + k, score);
        most = opw_max_f32(most, score);
    }
    return most;
}

/* The largest score of keys [low, high) of slices [first, last). */
OPW_INLINE float opw_pairs_most(float *scores, int64_t low, int64_t high, int64_t first, int64_t last, float cap) {
    vf32 most = opw_splat_f32(-__builtin_inff());
    for (int64_t s = first; s < last; s++) {
        int64_t from = s * OPW_PAIRS_KEYS;
        if (cap != 0 || from < low || from + OPW_PAIRS_KEYS > high)
            most = opw_pairs_seen(scores + from, low - from, high - from, cap, most);
        else
            for (int64_t k = from; k < from + OPW_PAIRS_KEYS; k += OPW_LANES)
                most = opw_max_f32(most, opw_load_f32(scores + k));
    }
    return opw_reduce_max_f32(most);
}

/* The weights of keys in slices [first, last), whose largest score is m, and their sum. */
OPW_INLINE float opw_pairs_weights(const float *scores, opw_pairs_rounded *weights, int64_t first, int64_t last, float m) {
    /* Nothing is what a key weighs that is not seen, where all scores are minus infinity as well. */
    vf32 base = opw_splat_f32(m == -__builtin_inff() ? 0 : m), sum = {0};
    for (int64_t k = first * OPW_PAIRS_KEYS; k < last * OPW_PAIRS_KEYS; k += OPW_LANES) {
        vf32 weight = opw_round_bf16(opw_exp_below_f32(opw_load_f32(scores + k) - base));
        OPW_PAIRS_STORE(weights + k, weight);
        sum += weight;
    }
    return opw_reduce_add_f32(sum);
}

/* Whether rows see the same values, or what some do not see, and others do, is finite: nothing times an infinity is not
 * nothing. */
OPW_INLINE bool opw_pairs_agree(const opw_pairs_chunk *own, int rows, int64_t padded) {
    int64_t low = INT64_MAX, most = 0, least = INT64_MAX, high = 0;
    for (int r = 0; r < rows; r++) {
        if (own->low[r] < low) low = own->low[r];
        if (own->low[r] > most) most = own->low[r];
        if (own->high[r] < least) least = own->high[r];
        if (own->high[r] > high) high = own->high[r];
    }
    vi32 found = {0};
    for (int64_t k = low; k < high; k++) {
        if (k == most && most < least) k = least;
        if (k >= high) break;
        const uint32_t *values = own->values[k / OPW_PAIRS_KEYS] + k % OPW_PAIRS_KEYS / 2 * padded;
        for (int64_t d = 0; d < padded; d += OPW_LANES) {
            vu32 exponents = opw_load_u32(values + d) >> (k % 2 * 16) & 0x7f80;
            found |= opw_eq_u32(exponents, opw_splat_u32(0x7f80));
        }
    }
    return !opw_reduce_or_b8(found);
}

/* The words of the slice of keys that begins with `key`. */
OPW_INLINE const uint32_t *opw_pairs_keys_of(const opw_attend_model *model, int64_t table, int64_t head, int64_t key) {
    int64_t at = model->tables[table + key / model->block] * model->kv_heads + head;
    return (const uint32_t *)model->keys + at * (model->size / 2) * model->block + key % model->block;
}

/* One chunk for queries, `rows` of each of `heads` heads of keys and values: `room` has a part for each. Keys before `keys`
 * are read after it. */
static __attribute__((noinline, unused)) void opw_pairs_attend(opw_pairs_unit *m, const opw_attend_model *model,
                                                               const opw_pairs_room *room, const int64_t *positions,
                                                               int rows, int heads, int steps, int64_t table,
                                                               int64_t head, int64_t chunk, int64_t keys) {
    int64_t begin = chunk * OPW_CHUNK, padded = model->padded, part = OPW_PART_HEAD + padded, block = model->block;
    int64_t words = model->size / 2, low = OPW_CHUNK, high = 0;
    int all = rows * heads;
    opw_pairs_chunk own;
    for (int r = 0; r < all; r++) {
        int64_t sees = positions[r] + 1 - begin;
        own.low[r] = model->window && sees > model->window ? sees - model->window : 0;
        own.high[r] = sees < 0 ? 0 : sees > OPW_CHUNK ? OPW_CHUNK : sees;
        if (own.low[r] > own.high[r]) own.low[r] = own.high[r];
        if (own.low[r] == own.high[r]) continue;
        if (own.low[r] < low) low = own.low[r];
        if (own.high[r] > high) high = own.high[r];
    }
    memset(room->sums, 0, (size_t)(all * part) * sizeof *room->sums);
    if (low >= high) return;
    /* Blocks that no query sees are not read: what they hold is not known. */
    own.heads = heads, own.keys_apart = words * block, own.values_apart = block / 2 * padded;
    own.copy = (uint32_t *)(void *)room->copy;
    own.first = low / OPW_PAIRS_KEYS, own.last = (high + OPW_PAIRS_KEYS - 1) / OPW_PAIRS_KEYS;
    for (int64_t s = own.first; s < own.last; s++) {
        int64_t key = begin + s * OPW_PAIRS_KEYS;
        int64_t at = model->tables[table + key / block] * model->kv_heads + head;
        own.keys[s] = opw_pairs_keys_of(model, table, head, key);
        own.values[s] = (const uint32_t *)model->values + (at * block + key % block) / 2 * padded;
    }
    for (int64_t s = 0; s < OPW_PAIRS_AHEAD; s++) {
        int64_t key = begin + OPW_CHUNK + s * OPW_PAIRS_KEYS;
        own.then[s] = key < keys ? opw_pairs_keys_of(model, table, head, key) : NULL;
    }
    opw_pairs_scores(m, &own, rows, room->queries, words, steps, block, room->scores);
    /* Rows by the largest score before their weights, so that none waits for its own. */
    for (int r = 0; r < all; r++)
        room->sums[r * part] = opw_pairs_most(room->scores + r * OPW_CHUNK, own.low[r], own.high[r], own.first, own.last,
                                              model->cap);
    for (int r = 0; r < all; r++)
        room->sums[r * part + 1] = opw_pairs_weights(room->scores + r * OPW_CHUNK, room->weights + r * OPW_CHUNK,
                                                     own.first, own.last, room->sums[r * part]);
    own.seen = low, own.end = high;
    if (heads > 1 || opw_pairs_agree(&own, rows, padded)) {
        opw_pairs_values(m, &own, rows, room->weights, padded, block, room->sums + OPW_PART_HEAD, part);
        return;
    }
    for (int r = 0; r < rows; r++) {
        own.seen = own.low[r], own.end = own.high[r];
        opw_pairs_values(m, &own, 1, room->weights + r * OPW_CHUNK, padded, block, room->sums + r * part + OPW_PART_HEAD,
                         part);
    }
}

/* tensor/paged.py: `attend_pairs`. */
static __attribute__((unused)) void attend_pairs_i64(
    const int64_t *row, const float *queries, const uint16_t *keys, const uint16_t *values, const int64_t *tables,
    const int64_t *owners, float *parts, float *rounded, float *scores, float *weights, float *sums,
    uint16_t *copy, int64_t tokens, int64_t blocks, int64_t entries, int64_t count, int64_t kv_heads, int64_t group,
    int64_t size, int64_t block, int64_t window, int64_t cap, int64_t causal, int64_t *error) {
    opw_attend_item item;
    memcpy(&item, row, sizeof item);
    opw_attend_model model = opw_attend_model_of(queries, keys, values, tables, kv_heads, group, size, block, window, cap);
    if (!opw_attend_is_right(&item, &model, tokens, blocks, entries, count, causal, owners)) {
        *error = OPW_BAD_INDEX;
        return;
    }
    opw_pairs_room room = {(opw_pairs_rounded *)rounded, scores, (opw_pairs_rounded *)weights, sums, copy};
    OPW_PAIRS_START(unit);
    int64_t part = OPW_PART_HEAD + model.padded;
    int rows, heads, steps = opw_pairs_steps(size / 2);
    for (int64_t head = item.head; head < item.head + item.heads; head += heads) {
        heads = item.count > 1 ? 1 : opw_pairs_heads(item.head + item.heads - head, group);
        for (int64_t at = 0; at < item.count * group; at += rows) {
            rows = opw_pairs_rows(item.count * group - at);
            int64_t position[OPW_PAIRS_ROWS];
            float *into[OPW_PAIRS_ROWS];
            for (int r = 0; r < rows * heads; r++) {
                int64_t i = (at + r % rows) / group, h = (head + r / rows) * group + (at + r % rows) % group;
                const float *query = queries + ((item.token + i) * kv_heads * group + h) * size;
                for (int64_t d = 0; d < size; d += OPW_LANES)
                    OPW_PAIRS_STORE_PARTIAL(room.queries + r * size + d, opw_load_partial_f32(query + d, size - d),
                                            size - d);
                position[r] = item.position + (causal ? i : 0);
                into[r] = parts + ((item.first + i * item.stride) * kv_heads * group + h) * part;
                if (!item.apart) memset(into[r], 0, (size_t)part * sizeof *parts);
            }
            int64_t seen = position[rows - 1] + 1, keys = item.end * OPW_CHUNK < seen ? item.end * OPW_CHUNK : seen;
            for (int64_t chunk = item.chunk; chunk < item.end; chunk++) {
                opw_pairs_attend(&unit, &model, &room, position, rows, heads, steps, item.table, head, chunk, keys);
                for (int r = 0; r < rows * heads; r++) {
                    if (item.apart)
                        memcpy(into[r] + (chunk - item.chunk) * kv_heads * group * part, sums + r * part,
                               (size_t)part * sizeof *parts);
                    else
                        opw_join_part(into[r], sums + r * part, model.padded);
                }
            }
        }
    }
}

#endif
