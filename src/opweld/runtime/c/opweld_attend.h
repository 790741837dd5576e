/* Attention over keys and values that lie in blocks of a pool (PagedAttention), by the functions `attend` and
 * `join_parts` of tensor/paged.py, which says what they compute. What depends on the type of the pool's elements is in
 * opweld_attend_pool.h, which is included here for each of them.
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
/* Rows of a register tile, where there are as many; else 4 at most. Keys and values of a chunk are read once for each
 * tile, which is too large a set for the first-level cache. */
#ifdef OPW_AVX512
#define OPW_QUERY_ROWS 12
#else
#define OPW_QUERY_ROWS 4
#endif

/* A row of `work`: queries [token, token + count) of the step, whose first is at `position` of its sequence, or, where
 * attention is not `causal`, which all see the keys up to `position`; with the block table from `table` on; heads
 * [head, head + heads) of keys and values; chunks [chunk, end). The result of query i, or where `apart` of its chunk c
 * alone, is part first + i * stride + (apart ? c - chunk : 0). */
typedef struct {
    int64_t token, count, position, table, head, chunk, end, first, stride, apart, heads;
} opw_attend_item;

typedef struct {
    const float *queries;
    const void *keys, *values;
    const int64_t *tables;
    int64_t kv_heads, group, size, padded, block, window;
    float cap;
} opw_attend_model;

/* cap: its bits. */
OPW_INLINE opw_attend_model opw_attend_model_of(const float *queries, const void *keys, const void *values,
                                                const int64_t *tables, int64_t kv_heads, int64_t group, int64_t size,
                                                int64_t block, int64_t window, int64_t cap) {
    opw_attend_model own = {queries, keys, values, tables, kv_heads, group, size, (size + 15) / 16 * 16, block, window, 0};
    int32_t bits = (int32_t)cap;
    memcpy(&own.cap, &bits, sizeof bits);
    return own;
}

/* Whether an item leads to no memory but that of its operands. */
OPW_INLINE bool opw_attend_is_right(const opw_attend_item *item, const opw_attend_model *own, int64_t tokens,
                                    int64_t blocks, int64_t entries, int64_t count, int64_t causal,
                                    const int64_t *owners) {
    int64_t last = item->position + (causal ? item->count - 1 : 0), needed = last / own->block + 1;
    bool right = item->token >= 0 && item->count >= 1 && item->token <= tokens - item->count && item->position >= 0 &&
                 item->head >= 0 && item->heads >= 1 && item->heads <= own->kv_heads &&
                 item->head <= own->kv_heads - item->heads && item->chunk >= 0 && item->chunk < item->end &&
                 item->end <= last / OPW_CHUNK + 1 &&
                 item->table >= 0 && needed <= entries && item->table <= entries - needed && item->first >= 0 &&
                 item->first < count && /* so that the sum below does not wrap */
                 item->stride >= 1 && item->stride <= count && item->count <= count &&
                 item->first + (item->count - 1) * item->stride <= count - (item->apart ? item->end - item->chunk : 1);
    for (int64_t b = 0; right && b < needed; b++)
        right = own->tables[item->table + b] >= 0 && own->tables[item->table + b] < blocks;
    for (int64_t i = 0; right && i < item->count; i++)
        right = owners[item->first + i * item->stride] == item->token + i;
    return right;
}

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

#define OPW_POOL_NAME_(name, T) name##_##T
#define OPW_POOL_NAME(name, T) OPW_POOL_NAME_(name, T)

#define OPW_POOL f32
#define OPW_ELEMENT float
#include "opweld_attend_pool.h"
#define OPW_POOL f16
#define OPW_ELEMENT uint16_t
#include "opweld_attend_pool.h"
#define OPW_POOL bf16
#define OPW_ELEMENT uint16_t
#include "opweld_attend_pool.h"

#include "opweld_attend_pairs.h"

/* tensor/paged.py: `join_parts`. */
static __attribute__((unused)) void join_parts_i64(const int64_t *row, const float *parts, float *out, float *sum,
                                                   int64_t count, int64_t heads, int64_t size, int64_t *error) {
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
