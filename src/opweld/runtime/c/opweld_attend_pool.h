/* A part of opweld_attend.h: what reads keys and values, of elements OPW_ELEMENT whose type is called OPW_POOL. They are
 * float32 in registers, whatever they are in memory. */

#define OPW_OF(name) OPW_POOL_NAME(name, OPW_POOL)
#define OPW_LOAD(place) OPW_POOL_NAME(opw_load, OPW_POOL)(place)

/* Fetches what is read next, of another block, front to back, in whatever order this one is read: the processor foresees
 * what follows in memory alone. */
#define OPW_FETCH(place)                                                                                               \
    do {                                                                                                               \
        opw_prefetch(place);                                                                                           \
        if (sizeof(OPW_ELEMENT) * OPW_LANES >= 64) opw_prefetch((place) + OPW_LANES);                                  \
    } while (0)

/* Scores of ROWS queries, [size][ROWS], by the keys of a block, [size][block]: `scores` has a row of OPW_CHUNK for each
 * query. `next` is where as many elements are read after it. VALUES adds values of `count` keys of a block,
 * [block][padded], times the weights of ROWS queries, W vectors of them at a time. */
#define OPW_DEFINE_ATTEND_TILE(ROWS, W, SCORES, VALUES)                                                                \
    OPW_INLINE void SCORES(const float *queries, const OPW_ELEMENT *keys, const OPW_ELEMENT *next, int64_t size,       \
                           int64_t block, float *scores) {                                                             \
        for (int64_t k = 0; k < block; k += 2 * OPW_LANES) {                                                           \
            vf32 low[ROWS], high[ROWS];                                                                                \
            _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++) low[r] = high[r] = (vf32){0};            \
            for (int64_t d = 0; d < size; d++) {                                                                       \
                OPW_FETCH(next + k * size + d * 2 * OPW_LANES);                                                        \
                vf32 first = OPW_LOAD(keys + d * block + k), second = OPW_LOAD(keys + d * block + k + OPW_LANES);      \
                _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++) {                                    \
                    vf32 q = opw_splat_f32(queries[d * ROWS + r]);                                                     \
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
    OPW_INLINE void VALUES(const float *weights, const OPW_ELEMENT *values, const OPW_ELEMENT *next, int64_t count,    \
                           int64_t padded, float *sums, int64_t part) {                                                \
        int64_t d = 0;                                                                                                 \
        for (; d + W * OPW_LANES <= padded; d += W * OPW_LANES) {                                                      \
            vf32 s[ROWS][W];                                                                                           \
            _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++)                                          \
                _Pragma("clang loop unroll(full)") for (int v = 0; v < W; v++)                                         \
                    s[r][v] = opw_load_f32(sums + r * part + d + v * OPW_LANES);                                       \
            for (int64_t k = 0; k < count; k++) {                                                                      \
                _Pragma("clang loop unroll(full)") for (int v = 0; v < W; v += 2)                                      \
                    OPW_FETCH(next + d * count + k * W * OPW_LANES + v * OPW_LANES);                                   \
                vf32 value[W];                                                                                         \
                _Pragma("clang loop unroll(full)") for (int v = 0; v < W; v++)                                         \
                    value[v] = OPW_LOAD(values + k * padded + d + v * OPW_LANES);                                      \
                _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++) {                                    \
                    vf32 weight = opw_splat_f32(weights[r * OPW_CHUNK + k]);                                           \
                    _Pragma("clang loop unroll(full)") for (int v = 0; v < W; v++)                                     \
                        s[r][v] = weight * value[v] + s[r][v];                                                         \
                }                                                                                                      \
            }                                                                                                          \
            _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++)                                          \
                _Pragma("clang loop unroll(full)") for (int v = 0; v < W; v++)                                         \
                    opw_store_f32(sums + r * part + d + v * OPW_LANES, s[r][v]);                                       \
        }                                                                                                              \
        for (; d < padded; d += OPW_LANES) {                                                                           \
            vf32 s[ROWS];                                                                                              \
            _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++) s[r] = opw_load_f32(sums + r * part + d); \
            for (int64_t k = 0; k < count; k++) {                                                                      \
                vf32 value = OPW_LOAD(values + k * padded + d);                                                        \
                _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++)                                      \
                    s[r] = opw_splat_f32(weights[r * OPW_CHUNK + k]) * value + s[r];                                   \
            }                                                                                                          \
            _Pragma("clang loop unroll(full)") for (int r = 0; r < ROWS; r++) opw_store_f32(sums + r * part + d, s[r]); \
        }                                                                                                              \
    }
OPW_DEFINE_ATTEND_TILE(1, 4, OPW_OF(opw_attend_scores_1), OPW_OF(opw_attend_values_1))
OPW_DEFINE_ATTEND_TILE(2, 4, OPW_OF(opw_attend_scores_2), OPW_OF(opw_attend_values_2))
OPW_DEFINE_ATTEND_TILE(3, 4, OPW_OF(opw_attend_scores_3), OPW_OF(opw_attend_values_3))
OPW_DEFINE_ATTEND_TILE(4, 4, OPW_OF(opw_attend_scores_4), OPW_OF(opw_attend_values_4))
#if OPW_QUERY_ROWS > 4
OPW_DEFINE_ATTEND_TILE(OPW_QUERY_ROWS, 2, OPW_OF(opw_attend_scores_many), OPW_OF(opw_attend_values_many))
#define OPW_BY_MANY(NAME, ...) default: OPW_OF(NAME##_many)(__VA_ARGS__);
#else
#define OPW_BY_MANY(NAME, ...)
#endif

#define OPW_BY_ROWS(rows, NAME, ...)                                                                                   \
    switch (rows) {                                                                                                    \
    case 1: OPW_OF(NAME##_1)(__VA_ARGS__); break;                                                                      \
    case 2: OPW_OF(NAME##_2)(__VA_ARGS__); break;                                                                      \
    case 3: OPW_OF(NAME##_3)(__VA_ARGS__); break;                                                                      \
    case 4: OPW_OF(NAME##_4)(__VA_ARGS__); break;                                                                      \
        OPW_BY_MANY(NAME, __VA_ARGS__)                                                                                 \
    }

/* Adds the values of keys [from, to) of a sequence, times the weights that rows have from key `begin` on. */
OPW_INLINE void OPW_OF(opw_attend_add)(const opw_attend_model *own, int64_t table, int64_t head, int64_t begin,
                                       int64_t from, int64_t to, int rows, const float *weights, float *sums) {
    int64_t part = OPW_PART_HEAD + own->padded, row = own->padded * own->block;
    for (int64_t k = from, next; k < to; k = next) {
        int64_t b = k / own->block;
        next = (b + 1) * own->block < to ? (b + 1) * own->block : to;
        const OPW_ELEMENT *values = own->values, *then = values;
        values += (own->tables[table + b] * own->kv_heads + head) * row + (k - b * own->block) * own->padded;
        then += (own->tables[table + b + (next < to)] * own->kv_heads + head) * row;
        OPW_BY_ROWS(rows, opw_attend_values, weights + k - begin, values, then, next - k, own->padded,
                    sums + OPW_PART_HEAD, part)
    }
}

/* One chunk for queries of one head of keys and values: `sums` has a part for each. */
static __attribute__((noinline, unused)) void OPW_OF(opw_attend_chunk)(
    const opw_attend_model *own, const float *queries, const int64_t *positions, int rows, int64_t table,
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
    int64_t row = own->size * own->block;
    int64_t skipped = first * own->block - begin, all = last * own->block - begin;
    for (int r = 0; r < rows; r++)
        for (int64_t k = 0; k < skipped; k++) scores[r * OPW_CHUNK + k] = 0;
    for (int64_t b = first; b < last; b++) {
        /* After the keys of the last block come the values of the first. */
        const OPW_ELEMENT *keys = own->keys, *then = b + 1 < last ? own->keys : own->values;
        keys += (own->tables[table + b] * own->kv_heads + head) * row;
        then += b + 1 < last ? (own->tables[table + b + 1] * own->kv_heads + head) * row
                             : (own->tables[table + first] * own->kv_heads + head) * own->padded * own->block;
        OPW_BY_ROWS(rows, opw_attend_scores, queries, keys, then, own->size, own->block,
                    scores + b * own->block - begin)
    }
    /* Values of keys that all rows see are read once. Those that some see are added by these alone: nothing times an
     * infinity is not nothing. */
    int64_t low[OPW_QUERY_ROWS], high[OPW_QUERY_ROWS], most = begin, least = end;
    for (int r = 0; r < rows; r++) {
        high[r] = positions[r] + 1 < end ? positions[r] + 1 : end;
        low[r] = own->window && positions[r] + 1 - own->window > begin ? positions[r] + 1 - own->window : begin;
        opw_attend_weights(scores + r * OPW_CHUNK, low[r] - begin, high[r] - begin, all, own->cap, sums + r * part);
        if (low[r] > most) most = low[r];
        if (high[r] < least) least = high[r];
    }
    if (least < most) least = most;
    for (int r = 0; r < rows; r++)
        OPW_OF(opw_attend_add)(own, table, head, begin, low[r], high[r] < most ? high[r] : most, 1,
                               scores + r * OPW_CHUNK, sums + r * part);
    OPW_OF(opw_attend_add)(own, table, head, begin, most, least, rows, scores, sums);
    for (int r = 0; r < rows; r++)
        OPW_OF(opw_attend_add)(own, table, head, begin, least > low[r] ? least : low[r], high[r], 1,
                               scores + r * OPW_CHUNK, sums + r * part);
}

/* tensor/paged.py: `attend`. */
static __attribute__((unused)) void OPW_POOL_NAME(OPW_OF(attend), i64)(
    const int64_t *row, const float *queries, const OPW_ELEMENT *keys, const OPW_ELEMENT *values, const int64_t *tables,
    const int64_t *owners, float *parts, float *scores, float *sums, float *tile, int64_t tokens, int64_t blocks, int64_t entries,
    int64_t count, int64_t kv_heads, int64_t group, int64_t size, int64_t block, int64_t window, int64_t cap,
    int64_t causal, int64_t *error) {
    opw_attend_item item;
    memcpy(&item, row, sizeof item);
    opw_attend_model own = opw_attend_model_of(queries, keys, values, tables, kv_heads, group, size, block, window, cap);
    if (!opw_attend_is_right(&item, &own, tokens, blocks, entries, count, causal, owners)) {
        *error = OPW_BAD_INDEX;
        return;
    }
    int64_t padded = own.padded, part = OPW_PART_HEAD + padded;
    int rows;
    for (int64_t head = item.head; head < item.head + item.heads; head++)
        for (int64_t at = 0; at < item.count * group; at += rows) {
            int64_t left = item.count * group - at;
            rows = left >= OPW_QUERY_ROWS ? OPW_QUERY_ROWS : left > 4 ? 4 : (int)left;
            int64_t position[OPW_QUERY_ROWS];
            float *into[OPW_QUERY_ROWS];
            for (int r = 0; r < rows; r++) {
                int64_t i = (at + r) / group, g = (at + r) % group;
                const float *query = queries + ((item.token + i) * kv_heads * group + head * group + g) * size;
                for (int64_t d = 0; d < size; d++) tile[d * rows + r] = query[d];
                position[r] = item.position + (causal ? i : 0);
                into[r] = parts + (((item.first + i * item.stride) * kv_heads + head) * group + g) * part;
                if (!item.apart) memset(into[r], 0, (size_t)part * sizeof *parts);
            }
            for (int64_t chunk = item.chunk; chunk < item.end; chunk++) {
                OPW_OF(opw_attend_chunk)(&own, tile, position, rows, item.table, head, chunk, scores, sums);
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

#undef OPW_BY_ROWS
#undef OPW_BY_MANY
#undef OPW_FETCH
#undef OPW_DEFINE_ATTEND_TILE
#undef OPW_LOAD
#undef OPW_OF
#undef OPW_ELEMENT
#undef OPW_POOL
