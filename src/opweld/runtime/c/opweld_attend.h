/* Attention over keys and values that lie in blocks of a pool (PagedAttention), by the functions `attend` and
 * `join_parts` of tensor/paged.py, which says what they compute.
 *
 * Keys of a sequence are taken in chunks of OPW_CHUNK from position 0 on. A chunk is computed from nothing: its largest
 * score m, the sum l of exp(score - m), and the sum of values so weighted; chunks are then joined one after the other.
 * So what a query gets depends on the keys that it sees alone, not on which queries are computed beside it, how many
 * threads share the chunks, or how the sequence was cut into steps. Every row of a register tile goes through the same
 * operations in the same order, however many rows it has.
 *
 * A part is m, l, and the weighted sum, of `padded` floats, from the third float on, at a multiple of 16 floats: PART_HEAD
 * floats come first. */
#ifndef OPWELD_ATTEND_H
#define OPWELD_ATTEND_H

#include "opweld_math.h"

#define OPW_CHUNK 256
#define OPW_PART_HEAD 16
#define OPW_QUERY_ROWS 4

/* A row of `work`: queries [token, token + count) of the step, whose first is at `position` of its sequence, or, where
 * attention is not `causal`, which all see the keys up to `position`; with the block table from `table` on; a head of
 * keys and values; chunks [chunk, end). The result of query i, or where `apart` of its chunk c alone, is part
 * first + i * stride + (apart ? c - chunk : 0). */
typedef struct {
    int64_t token, count, position, table, head, chunk, end, first, stride, apart;
} opw_attend_item;

typedef struct {
    const float *queries, *keys, *values;
    const int64_t *tables;
    int64_t kv_heads, group, size, padded, block, window;
    float cap;
} opw_attend_model;

/* Adds a part to another one. Both the chunks of one item and those of several meet here, so it is never inlined: the
 * same instructions round the same way. */
static __attribute__((noinline, unused)) void opw_join_part(float *into, const float *part, int64_t padded) {
    if (part[1] == 0) return;
    if (into[1] == 0) {
        memcpy(into, part, (size_t)(OPW_PART_HEAD + padded) * sizeof *into);
        return;
    }
    float most = into[0] > part[0] ? into[0] : part[0];
    float old = opw_exp_f32(opw_splat_f32(into[0] - most))[0], new = opw_exp_f32(opw_splat_f32(part[0] - most))[0];
    into[0] = most;
    into[1] = into[1] * old + part[1] * new;
    for (int64_t d = OPW_PART_HEAD; d < OPW_PART_HEAD + padded; d += OPW_LANES)
        opw_store_f32(into + d, opw_load_f32(into + d) * opw_splat_f32(old) + opw_load_f32(part + d) * opw_splat_f32(new));
}

/* Scores of ROWS queries by the keys of a block, [size][block]: `scores` has a row of OPW_CHUNK for each query. */
#define OPW_DEFINE_ATTEND_TILE(ROWS)                                                                                   \
    OPW_INLINE void opw_attend_scores_##ROWS(const float *const *queries, const float *keys, int64_t size,             \
                                             int64_t block, float *scores) {                                           \
        for (int64_t k = 0; k < block; k += 2 * OPW_LANES) {                                                           \
            vf32 low[ROWS], high[ROWS];                                                                                \
            _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++) low[r] = high[r] = (vf32){0};            \
            for (int64_t d = 0; d < size; d++) {                                                                       \
                vf32 first = opw_load_f32(keys + d * block + k), second = opw_load_f32(keys + d * block + k + OPW_LANES); \
                _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++) {                                    \
                    vf32 q = opw_splat_f32(queries[r][d]);                                                             \
                    low[r] = q * first + low[r];                                                                       \
                    high[r] = q * second + high[r];                                                                    \
                }                                                                                                      \
            }                                                                                                          \
            _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++) {                                        \
                opw_store_f32(scores + r * OPW_CHUNK + k, low[r]);                                                     \
                opw_store_f32(scores + r * OPW_CHUNK + k + OPW_LANES, high[r]);                                        \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* Adds values of `count` keys of a block, [block][padded], times the weights of ROWS queries. */                  \
    OPW_INLINE void opw_attend_values_##ROWS(const float *weights, const float *values, int64_t count, int64_t padded, \
                                             float *sums, int64_t part) {                                              \
        int64_t d = 0;                                                                                                 \
        for (; d + 4 * OPW_LANES <= padded; d += 4 * OPW_LANES) {                                                      \
            vf32 s[ROWS][4];                                                                                           \
            _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++)                                          \
                _Pragma("clang loop unroll(full)") for (int v = 0; v < 4; v++)                                         \
                    s[r][v] = opw_load_f32(sums + r * part + d + v * OPW_LANES);                                       \
            for (int64_t k = 0; k < count; k++)                                                                        \
                _Pragma("clang loop unroll(full)") for (int v = 0; v < 4; v++) {                                       \
                    vf32 value = opw_load_f32(values + k * padded + d + v * OPW_LANES);                                \
                    _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++)                                  \
                        s[r][v] = opw_splat_f32(weights[r * OPW_CHUNK + k]) * value + s[r][v];                         \
                }                                                                                                      \
            _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++)                                          \
                _Pragma("clang loop unroll(full)") for (int v = 0; v < 4; v++)                                         \
                    opw_store_f32(sums + r * part + d + v * OPW_LANES, s[r][v]);                                       \
        }                                                                                                              \
        for (; d < padded; d += OPW_LANES) {                                                                           \
            vf32 s[ROWS];                                                                                              \
            _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++) s[r] = opw_load_f32(sums + r * part + d); \
            for (int64_t k = 0; k < count; k++) {                                                                      \
                vf32 value = opw_load_f32(values + k * padded + d);                                                    \
                _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++)                                      \
                    s[r] = opw_splat_f32(weights[r * OPW_CHUNK + k]) * value + s[r];                                   \
            }                                                                                                          \
            _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++) opw_store_f32(sums + r * part + d, s[r]); \
        }                                                                                                              \
    }
OPW_DEFINE_ATTEND_TILE(1)
OPW_DEFINE_ATTEND_TILE(2)
OPW_DEFINE_ATTEND_TILE(3)
OPW_DEFINE_ATTEND_TILE(4)

/* The weights of a query in place of its scores, for the keys [low, high) of a chunk that it sees; m and l. */
OPW_INLINE void opw_attend_weights(float *scores, int64_t low, int64_t high, int64_t all, float cap, float *part) {
    vf32 least = opw_splat_f32(-__builtin_inff()), most = least;
    for (int64_t k = 0; k < all; k += OPW_LANES) {
        vf32 score = opw_load_f32(scores + k);
        if (cap != 0) score = opw_tanh_f32(score / opw_splat_f32(cap)) * opw_splat_f32(cap);
        vi32 seen = ~opw_first_lanes(low - k < 0 ? 0 : low - k > OPW_LANES ? OPW_LANES : low - k) &
                    opw_first_lanes(high - k < 0 ? 0 : high - k > OPW_LANES ? OPW_LANES : high - k);
        score = opw_select_f32(seen, score, least);
        opw_store_f32(scores + k, score);
        most = opw_max_f32(most, score);
    }
    float m = opw_reduce_max_f32(most);
    vf32 sum = {0};
    for (int64_t k = 0; k < all; k += OPW_LANES) {
        vf32 score = opw_load_f32(scores + k);
        /* Nothing is what a key weighs that is not seen, where all scores are minus infinity as well. */
        vf32 weight = opw_select_f32(opw_eq_f32(score, least), (vf32){0}, opw_exp_f32(score - opw_splat_f32(m)));
        opw_store_f32(scores + k, weight);
        sum += weight;
    }
    part[0] = m;
    part[1] = opw_reduce_add_f32(sum);
}

#define OPW_BY_ROWS(rows, NAME, ...)                                                                                   \
    switch (rows) {                                                                                                    \
    case 1: NAME##_1(__VA_ARGS__); break;                                                                              \
    case 2: NAME##_2(__VA_ARGS__); break;                                                                              \
    case 3: NAME##_3(__VA_ARGS__); break;                                                                              \
    default: NAME##_4(__VA_ARGS__);                                                                                    \
    }

/* One chunk for queries of one head of keys and values: `sums` has a part for each. */
static __attribute__((noinline, unused)) void opw_attend_chunk(const opw_attend_model *own, const float *const *queries,
                                                               const int64_t *positions, int rows, int64_t table,
                                                               int64_t head, int64_t chunk, float *scores, float *sums) {
    int64_t begin = chunk * OPW_CHUNK, end = begin, part = OPW_PART_HEAD + own->padded, from = INT64_MAX;
    for (int r = 0; r < rows; r++) {
        int64_t high = positions[r] + 1, low = own->window ? high - own->window : 0;
        if (high > end) end = high;
        if (low < from) from = low;
    }
    if (end > begin + OPW_CHUNK) end = begin + OPW_CHUNK;
    from = from < begin ? begin : from;
    /* Blocks that no query sees are not read: what they hold is not known. */
    int64_t first = from / own->block, last = (end + own->block - 1) / own->block;
    memset(sums, 0, (size_t)(rows * part) * sizeof *sums);
    if (first >= last) return;
    int64_t row = own->size * own->block, value_row = own->padded * own->block;
    int64_t skipped = first * own->block - begin, all = last * own->block - begin;
    for (int r = 0; r < rows; r++)
        for (int64_t k = 0; k < skipped; k++) scores[r * OPW_CHUNK + k] = 0;
    for (int64_t b = first; b < last; b++) {
        const float *keys = own->keys + (own->tables[table + b] * own->kv_heads + head) * row;
        OPW_BY_ROWS(rows, opw_attend_scores, queries, keys, own->size, own->block, scores + b * own->block - begin)
    }
    for (int r = 0; r < rows; r++) {
        int64_t high = positions[r] + 1 - begin, low = own->window ? high - own->window : 0;
        opw_attend_weights(scores + r * OPW_CHUNK, low, high, all, own->cap, sums + r * part);
    }
    for (int64_t b = first; b < last; b++) {
        const float *values = own->values + (own->tables[table + b] * own->kv_heads + head) * value_row;
        int64_t count = end - b * own->block < own->block ? end - b * own->block : own->block;
        OPW_BY_ROWS(rows, opw_attend_values, scores + b * own->block - begin, values, count, own->padded,
                    sums + OPW_PART_HEAD, part)
    }
}

/* tensor/paged.py: `attend`. */
static __attribute__((unused)) void attend_i64(
    const int64_t *row, const float *queries, const float *keys, const float *values, const int64_t *tables,
    const int64_t *owners, float *parts, float *scores, float *sums, int64_t tokens, int64_t blocks, int64_t entries,
    int64_t count, int64_t kv_heads, int64_t group, int64_t size, int64_t block, int64_t window, int64_t cap,
    int64_t causal, int64_t *error) {
    opw_attend_item item;
    memcpy(&item, row, sizeof item);
    int64_t padded = (size + 15) / 16 * 16, part = OPW_PART_HEAD + padded;
    opw_attend_model own = {queries, keys, values, tables, kv_heads, group, size, padded, block, window, 0};
    int32_t bits = (int32_t)cap;
    memcpy(&own.cap, &bits, sizeof bits);
    int64_t last = item.position + (causal ? item.count - 1 : 0), needed = last / block + 1;
    bool right = item.token >= 0 && item.count >= 1 && item.token <= tokens - item.count && item.position >= 0 &&
                 item.head >= 0 && item.head < kv_heads && item.chunk >= 0 && item.chunk < item.end && item.end <= last / OPW_CHUNK + 1 &&
                 item.table >= 0 && needed <= entries && item.table <= entries - needed && item.first >= 0 &&
                 item.first >= 0 && item.stride >= 1 && item.stride <= count && item.count <= count &&
                 item.first + (item.count - 1) * item.stride <= count - (item.apart ? item.end - item.chunk : 1);
    for (int64_t b = 0; right && b < needed; b++)
        right = tables[item.table + b] >= 0 && tables[item.table + b] < blocks;
    for (int64_t i = 0; right && i < item.count; i++) right = owners[item.first + i * item.stride] == item.token + i;
    if (!right) {
        *error = OPW_BAD_INDEX;
        return;
    }
    for (int64_t at = 0; at < item.count * group; at += OPW_QUERY_ROWS) {
        int rows = (int)(item.count * group - at < OPW_QUERY_ROWS ? item.count * group - at : OPW_QUERY_ROWS);
        const float *query[OPW_QUERY_ROWS];
        int64_t position[OPW_QUERY_ROWS];
        float *into[OPW_QUERY_ROWS];
        for (int r = 0; r < rows; r++) {
            int64_t i = (at + r) / group, g = (at + r) % group;
            query[r] = queries + ((item.token + i) * kv_heads * group + item.head * group + g) * size;
            position[r] = item.position + (causal ? i : 0);
            into[r] = parts + (((item.first + i * item.stride) * kv_heads + item.head) * group + g) * part;
            if (!item.apart) memset(into[r], 0, (size_t)part * sizeof *parts);
        }
        for (int64_t chunk = item.chunk; chunk < item.end; chunk++) {
            opw_attend_chunk(&own, query, position, rows, item.table, item.head, chunk, scores, sums);
            for (int r = 0; r < rows; r++) {
                if (item.apart)
                    memcpy(into[r] + (chunk - item.chunk) * kv_heads * group * part, sums + r * part,
                           (size_t)part * sizeof *parts);
                else
                    opw_join_part(into[r], sums + r * part, padded);
            }
        }
    }
}

/* tensor/paged.py: `join_parts`. */
static __attribute__((unused)) void join_parts_i64(const int64_t *row, const float *parts, float *out,
                                                              float *sum, int64_t count, int64_t heads, int64_t size,
                                                              int64_t *error) {
    int64_t padded = (size + 15) / 16 * 16, part = OPW_PART_HEAD + padded, first = row[0], chunks = row[1];
    if (first < 0 || chunks < 1 || first > count - chunks) {
        *error = OPW_BAD_INDEX;
        return;
    }
    for (int64_t head = 0; head < heads; head++) {
        memset(sum, 0, (size_t)part * sizeof *sum);
        for (int64_t i = 0; i < chunks; i++) opw_join_part(sum, parts + ((first + i) * heads + head) * part, padded);
        for (int64_t d = 0; d < size; d++) out[head * size + d] = sum[1] == 0 ? 0 : sum[OPW_PART_HEAD + d] / sum[1];
    }
}

#endif
