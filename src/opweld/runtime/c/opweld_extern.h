/* The functions of tensor/externs.py over memory, for each type of their first operand. Operands come first, then
 * results, scratch, numbers, and the error word. */
#ifndef OPWELD_EXTERN_H
#define OPWELD_EXTERN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "opweld_abi.h"

#define OPW_EXTERN static inline __attribute__((unused))

/* ------------------------------------------------------------------------------------------------------------ heaps */

/* A heap of indices, the one that `BEFORE(a, b)` puts last on top. `sink` repairs it below `at`; taking the top away,
 * one after the other, sorts it. BEFORE may use what is in scope where the function is defined: its parameter `own`. */
#define OPW_DEFINE_HEAP(NAME, OWN, BEFORE)                                                                             \
    OPW_EXTERN void opw_sink_##NAME(const OWN *own, int64_t *heap, int64_t n, int64_t at) {                            \
        int64_t index = heap[at];                                                                                      \
        for (int64_t child; (child = 2 * at + 1) < n; at = child) {                                                    \
            if (child + 1 < n && BEFORE(own, heap[child], heap[child + 1])) child++;                                   \
            if (!BEFORE(own, index, heap[child])) break;                                                               \
            heap[at] = heap[child];                                                                                    \
        }                                                                                                              \
        heap[at] = index;                                                                                              \
    }                                                                                                                  \
    OPW_EXTERN void opw_sort_##NAME(const OWN *own, int64_t *heap, int64_t n) {                                        \
        for (int64_t at = n / 2 - 1; at >= 0; at--) opw_sink_##NAME(own, heap, n, at);                                 \
        for (int64_t left = n - 1; left > 0; left--) {                                                                 \
            int64_t last = heap[left];                                                                                 \
            heap[left] = heap[0];                                                                                      \
            heap[0] = last;                                                                                            \
            opw_sink_##NAME(own, heap, left, 0);                                                                       \
        }                                                                                                              \
    }

/* ----------------------------------------------------------------------------------------------------------- orders */

/* NaN counts as larger than any number. */
#define OPW_DEFINE_ORDER(T, element)                                                                                   \
    OPW_EXTERN bool opw_less_##T(element a, element b) { return a < b || (a == a && b != b); }                         \
    typedef struct {                                                                                                   \
        const element *keys;                                                                                           \
        bool largest;                                                                                                  \
    } opw_keys_##T;                                                                                                    \
    OPW_EXTERN bool opw_ahead_##T(const opw_keys_##T *own, int64_t i, int64_t j) {                                     \
        element a = own->keys[i], b = own->keys[j];                                                                    \
        if (opw_less_##T(a, b)) return !own->largest;                                                                  \
        if (opw_less_##T(b, a)) return own->largest;                                                                   \
        return i < j;                                                                                                  \
    }                                                                                                                  \
    OPW_DEFINE_HEAP(order_##T, opw_keys_##T, opw_ahead_##T)                                                            \
    OPW_EXTERN void opw_extern_order_##T(const element *keys, int64_t *order, int64_t n, int64_t k, int64_t largest,   \
                                         int64_t *error) {                                                             \
        (void)error;                                                                                                   \
        opw_keys_##T own = {keys, largest != 0};                                                                       \
        if (k == 0) return;                                                                                            \
        for (int64_t i = 0; i < k; i++) order[i] = i;                                                                  \
        for (int64_t at = k / 2 - 1; at >= 0; at--) opw_sink_order_##T(&own, order, k, at);                            \
        for (int64_t i = k; i < n; i++) {                                                                              \
            if (!opw_ahead_##T(&own, i, order[0])) continue;                                                           \
            order[0] = i;                                                                                              \
            opw_sink_order_##T(&own, order, k, 0);                                                                     \
        }                                                                                                              \
        opw_sort_order_##T(&own, order, k);                                                                            \
    }                                                                                                                  \
    typedef struct {                                                                                                   \
        const element *table;                                                                                          \
        int64_t width;                                                                                                 \
    } opw_rows_##T;                                                                                                    \
    OPW_EXTERN int opw_compare_rows_##T(const opw_rows_##T *own, int64_t i, int64_t j) {                               \
        const element *a = own->table + i * own->width, *b = own->table + j * own->width;                              \
        for (int64_t k = 0; k < own->width; k++) {                                                                     \
            if (opw_less_##T(a[k], b[k])) return -1;                                                                   \
            if (opw_less_##T(b[k], a[k])) return 1;                                                                    \
        }                                                                                                              \
        return 0;                                                                                                      \
    }                                                                                                                  \
    OPW_EXTERN bool opw_row_ahead_##T(const opw_rows_##T *own, int64_t i, int64_t j) {                                 \
        int found = opw_compare_rows_##T(own, i, j);                                                                   \
        return found ? found < 0 : i < j;                                                                              \
    }                                                                                                                  \
    OPW_DEFINE_HEAP(rows_##T, opw_rows_##T, opw_row_ahead_##T)                                                         \
    OPW_EXTERN void opw_extern_unique_##T(const element *table, int64_t *first, int64_t *inverse, int64_t *counts,     \
                                          int64_t *total, int64_t *order, int64_t rows, int64_t width,                 \
                                          int64_t by_value, int64_t *error) {                                          \
        (void)error;                                                                                                   \
        opw_rows_##T own = {table, width};                                                                             \
        for (int64_t i = 0; i < rows; i++) order[i] = i;                                                               \
        opw_sort_rows_##T(&own, order, rows);                                                                          \
        int64_t groups = 0;                                                                                            \
        for (int64_t i = 0; i < rows; i++) {                                                                           \
            bool begins = i == 0 || opw_compare_rows_##T(&own, order[i - 1], order[i]);                                \
            if (begins) counts[groups] = 0, first[groups] = order[i], groups++;                                        \
            counts[groups - 1]++;                                                                                      \
            inverse[order[i]] = groups - 1;                                                                            \
        }                                                                                                              \
        total[0] = groups;                                                                                             \
        if (!by_value) opw_by_appearance(first, inverse, counts, order, rows, groups);                                 \
    }

OPW_EXTERN bool opw_appears_ahead(const int64_t *first, int64_t i, int64_t j) { return first[i] < first[j]; }
OPW_DEFINE_HEAP(appearance, int64_t, opw_appears_ahead)

/* Numbers groups by first appearance. `order` is scratch, of one element a row. */
OPW_EXTERN void opw_by_appearance(int64_t *first, int64_t *inverse, int64_t *counts, int64_t *order, int64_t rows,
                                  int64_t groups) {
    for (int64_t i = 0; i < groups; i++) order[i] = i;
    opw_sort_appearance(first, order, groups);
    /* Beyond `groups`, `order` has no room in general: counts are moved along the cycles of the permutation. */
    for (int64_t start = 0; start < groups; start++) {
        if (order[start] < 0) continue;
        int64_t kept_first = first[start], kept_count = counts[start], at = start;
        for (int64_t from; (from = order[at]) != start; at = from) {
            first[at] = first[from];
            counts[at] = counts[from];
            order[at] = -1;
        }
        first[at] = kept_first;
        counts[at] = kept_count;
        order[at] = -1;
    }
    /* Rows of a group have the number of its first one. A first row's own old number is overwritten only once. */
    for (int64_t group = 0; group < groups; group++) order[inverse[first[group]]] = group;
    for (int64_t i = 0; i < rows; i++) inverse[i] = order[inverse[i]];
}

OPW_DEFINE_ORDER(f32, float)
OPW_DEFINE_ORDER(f64, double)
OPW_DEFINE_ORDER(i32, int32_t)
OPW_DEFINE_ORDER(i64, int64_t)
OPW_DEFINE_ORDER(u64, uint64_t)

/* ------------------------------------------------------------------------------------------------- scattered writes */

#define OPW_REPLACE(a, b) (b)
#define OPW_ADD(a, b) ((a) + (b))
#define OPW_MUL(a, b) ((a) * (b))
#define OPW_MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define OPW_MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

#define OPW_DEFINE_SCATTERED(FUNCTION, T, element, COMBINE)                                                            \
    OPW_EXTERN void opw_extern_##FUNCTION##_##T(const element *data, const int64_t *places, const element *updates,    \
                                                element *out, int64_t size, int64_t count, int64_t width,              \
                                                int64_t *error) {                                                      \
        if (out != data) memcpy(out, data, (size_t)size * sizeof *out);                                                \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            int64_t start = places[i];                                                                                 \
            if (start < 0 || start > size - width) {                                                                   \
                *error = OPW_BAD_INDEX;                                                                                \
                return;                                                                                                \
            }                                                                                                          \
            for (int64_t k = 0; k < width; k++)                                                                        \
                out[start + k] = (element)COMBINE(out[start + k], updates[i * width + k]);                             \
        }                                                                                                              \
    }
#define OPW_DEFINE_SCATTERS(T, element)                                                                                \
    OPW_DEFINE_SCATTERED(scatter, T, element, OPW_REPLACE)                                                             \
    OPW_DEFINE_SCATTERED(scatter_add, T, element, OPW_ADD)                                                             \
    OPW_DEFINE_SCATTERED(scatter_mul, T, element, OPW_MUL)                                                             \
    OPW_DEFINE_SCATTERED(scatter_min, T, element, OPW_MIN)                                                             \
    OPW_DEFINE_SCATTERED(scatter_max, T, element, OPW_MAX)
OPW_DEFINE_SCATTERS(f32, float)
OPW_DEFINE_SCATTERS(f64, double)
OPW_DEFINE_SCATTERS(i8, int8_t)
OPW_DEFINE_SCATTERS(i16, int16_t)
OPW_DEFINE_SCATTERS(i32, int32_t)
OPW_DEFINE_SCATTERS(i64, int64_t)
OPW_DEFINE_SCATTERS(u8, uint8_t)
OPW_DEFINE_SCATTERS(u16, uint16_t)
OPW_DEFINE_SCATTERS(u32, uint32_t)
OPW_DEFINE_SCATTERS(u64, uint64_t)
OPW_DEFINE_SCATTERED(scatter, b8, uint8_t, OPW_REPLACE)
OPW_DEFINE_SCATTERED(scatter, f16, uint16_t, OPW_REPLACE)
OPW_DEFINE_SCATTERED(scatter, bf16, uint16_t, OPW_REPLACE)

/* ------------------------------------------------------------------------------------------------------- assertions */

#define OPW_DEFINE_ASSERTED(T, element)                                                                                \
    OPW_EXTERN void opw_extern_asserted_##T(const element *data, const uint8_t *holds, element *out, int64_t size,     \
                                            int64_t *error) {                                                          \
        if (!*holds)                                                                                                   \
            *error = OPW_ASSERTION;                                                                                    \
        else if (out != data)                                                                                          \
            memcpy(out, data, (size_t)size * sizeof *out);                                                             \
    }
OPW_DEFINE_ASSERTED(f32, float)
OPW_DEFINE_ASSERTED(f64, double)
OPW_DEFINE_ASSERTED(f16, uint16_t)
OPW_DEFINE_ASSERTED(bf16, uint16_t)
OPW_DEFINE_ASSERTED(i8, int8_t)
OPW_DEFINE_ASSERTED(i16, int16_t)
OPW_DEFINE_ASSERTED(i32, int32_t)
OPW_DEFINE_ASSERTED(i64, int64_t)
OPW_DEFINE_ASSERTED(u8, uint8_t)
OPW_DEFINE_ASSERTED(u16, uint16_t)
OPW_DEFINE_ASSERTED(u32, uint32_t)
OPW_DEFINE_ASSERTED(u64, uint64_t)
OPW_DEFINE_ASSERTED(b8, uint8_t)

/* ------------------------------------------------------------------------------------------------- data-dependent -- */

OPW_EXTERN void opw_extern_nonzero_b8(const uint8_t *mask, int64_t *places, int64_t *count, int64_t n, int64_t *error) {
    (void)error;
    int64_t found = 0;
    /* Always written, kept where the mask is set: avoids an unpredictable branch. */
    for (int64_t i = 0; i < n; i++) {
        places[found] = i;
        found += mask[i] != 0;
    }
    /* What follows computes all places: of what memory held before, quotients may take long. */
    for (int64_t i = found; i < n; i++) places[i] = 0;
    count[0] = found;
}

typedef struct {
    float y0, x0, y1, x1;
} opw_box;

OPW_EXTERN opw_box opw_corners(const float *box, bool centred) {
    if (centred) {
        float x = box[0], y = box[1], w = box[2] / 2, h = box[3] / 2;
        return (opw_box){y - h, x - w, y + h, x + w};
    }
    return (opw_box){OPW_MIN(box[0], box[2]), OPW_MIN(box[1], box[3]), OPW_MAX(box[0], box[2]), OPW_MAX(box[1], box[3])};
}

OPW_EXTERN float opw_area(opw_box box) { return (box.y1 - box.y0) * (box.x1 - box.x0); }

/* Whether two boxes share more than a fraction of their union. */
OPW_EXTERN bool opw_overlaps(opw_box a, opw_box b, float most) {
    float h = OPW_MIN(a.y1, b.y1) - OPW_MAX(a.y0, b.y0), w = OPW_MIN(a.x1, b.x1) - OPW_MAX(a.x0, b.x0);
    float shared = h > 0 && w > 0 ? h * w : 0;
    return shared > most * (opw_area(a) + opw_area(b) - shared);
}

/* Boxes from the best score on, without those that overlap a better one that was kept. */
OPW_EXTERN void opw_extern_suppress_f32(const float *place, const float *scores, const float *overlap,
                                        const float *threshold, int64_t *selected, int64_t *count, int64_t *order,
                                        int64_t batches, int64_t boxes, int64_t classes, int64_t most, int64_t centred,
                                        int64_t *error) {
    (void)error;
    int64_t found = 0;
    for (int64_t batch = 0; batch < batches; batch++)
        for (int64_t kind = 0; kind < classes; kind++) {
            const float *all = place + batch * boxes * 4;
            opw_keys_f32 own = {scores + (batch * classes + kind) * boxes, true};
            int64_t candidates = 0, first = found;
            for (int64_t i = 0; i < boxes; i++)
                if (own.keys[i] > threshold[0]) order[candidates++] = i;
            opw_sort_order_f32(&own, order, candidates);
            for (int64_t i = 0; i < candidates && found - first < most; i++) {
                opw_box box = opw_corners(all + order[i] * 4, centred != 0);
                bool kept = true;
                for (int64_t k = first; k < found && kept; k++)
                    kept = !opw_overlaps(box, opw_corners(all + selected[k * 3 + 2] * 4, centred != 0), overlap[0]);
                if (!kept) continue;
                selected[found * 3] = batch;
                selected[found * 3 + 1] = kind;
                selected[found * 3 + 2] = order[i];
                found++;
            }
        }
    count[0] = found;
}

/* ------------------------------------------------------------------------------------------------------------- trees */

/* The number of trees traversed in parallel: each step waits for memory, but traversals are independent. One that has
 * reached its leaf, a negative number, stays there. */
#define OPW_WALKS 8

#define OPW_DEFINE_TREES(T, element)                                                                                   \
    OPW_EXTERN int32_t opw_branch_##T(const element *row, const int32_t *nodes, const element *thresholds,             \
                                      int32_t at) {                                                                    \
        const int32_t *node = nodes + (int64_t)at * 4;                                                                 \
        element value = row[node[0]], threshold = thresholds[at];                                                      \
        int outcome = (value < threshold) | (value == threshold) << 1 | (value > threshold) << 2 |                     \
                      (value != value) << 3;                                                                           \
        return node[2 + !(node[1] & outcome)];                                                                         \
    }                                                                                                                  \
    OPW_EXTERN void opw_extern_trees_##T(const element *row, const int32_t *nodes, const element *thresholds,          \
                                         const int32_t *roots, const int32_t *begins, const int32_t *targets,          \
                                         const element *weights, const element *base, element *out,                    \
                                         uint8_t *seen, int64_t features, int64_t count, int64_t trees,                \
                                         int64_t leaves, int64_t pairs, int64_t sums, int64_t combine,                 \
                                         int64_t *error) {                                                             \
        (void)features, (void)count, (void)leaves, (void)pairs, (void)error;                                           \
        memset(out, 0, (size_t)sums * sizeof *out);                                                                    \
        memset(seen, 0, (size_t)sums);                                                                                 \
        for (int64_t first = 0; first < trees; first += OPW_WALKS) {                                                   \
            int walks = trees - first < OPW_WALKS ? (int)(trees - first) : OPW_WALKS;                                  \
            int32_t at[OPW_WALKS];                                                                                     \
            int32_t inside = 0;                                                                                        \
            for (int i = 0; i < walks; i++) at[i] = roots[first + i];                                                  \
            do {                                                                                                       \
                inside = -1;                                                                                           \
                for (int i = 0; i < walks; i++)                                                                        \
                    if (at[i] >= 0) inside &= at[i] = opw_branch_##T(row, nodes, thresholds, at[i]);                   \
            } while (inside >= 0);                                                                                     \
            for (int i = 0; i < walks; i++)                                                                            \
                for (int32_t pair = begins[~at[i]]; pair < begins[~at[i] + 1]; pair++) {                               \
                    int32_t target = targets[pair];                                                                    \
                    element old = out[target], new = weights[pair];                                                    \
                    if (seen[target] && combine == 1) new = OPW_MIN(old, new);                                         \
                    if (seen[target] && combine == 2) new = OPW_MAX(old, new);                                         \
                    out[target] = combine == 0 || combine == 3 ? old + new : new;                                      \
                    seen[target] = 1;                                                                                  \
                }                                                                                                      \
        }                                                                                                              \
        for (int64_t i = 0; i < sums; i++) out[i] = (combine == 3 ? out[i] / (element)trees : out[i]) + base[i];       \
    }
OPW_DEFINE_TREES(f32, float)
OPW_DEFINE_TREES(f64, double)

/* ----------------------------------------------------------------------------------------------------------- regions */

/* Samples of a bin are at most a pixel apart and at least half of one, unless there is a single one. Those before the
 * image are passed over at once, and those behind it end the bin: a region costs what lies on the image, however large
 * it says to be. Nor does one without end count on where `element` has no next number. */
#define OPW_DEFINE_ALIGN(T, element)                                                                                   \
    typedef struct {                                                                                                   \
        element start, step, count;                                                                                    \
        int64_t size;                                                                                                  \
    } opw_axis_##T;                                                                                                    \
    OPW_EXTERN opw_axis_##T opw_axis_of_##T(element start, element extent, int64_t bins, int64_t size) {               \
        element step = extent / (element)bins;                                                                         \
        bool finite = step > 0 && step - step == 0;                                                                    \
        return (opw_axis_##T){start, step, finite ? (element)__builtin_ceil((double)step) : 0, size};                  \
    }                                                                                                                  \
    OPW_EXTERN element opw_sample_##T(opw_axis_##T axis, int64_t bin, element i) {                                     \
        return axis.start + (element)bin * axis.step + (i + (element)0.5) * axis.step / axis.count;                    \
    }                                                                                                                  \
    OPW_EXTERN element opw_first_sample_##T(opw_axis_##T axis, int64_t bin) {                                          \
        double before = (-1.0 - opw_sample_##T(axis, bin, 0)) * axis.count / axis.step - 2;                            \
        return before > 0 ? (element)__builtin_floor(before) : 0;                                                      \
    }                                                                                                                  \
    /* The pixel before a place that is near the image; `part` is how far behind it the place is. */                   \
    OPW_EXTERN int64_t opw_pixel_##T(element place, int64_t size, element *part) {                                     \
        element inside = OPW_MIN(OPW_MAX(place, 0), (element)(size - 1));                                              \
        int64_t pixel = (int64_t)inside;                                                                               \
        *part = inside - (element)pixel;                                                                               \
        return pixel;                                                                                                  \
    }                                                                                                                  \
    OPW_EXTERN void opw_extern_align_##T(const element *place, const int64_t *image, const element *x, element *out,   \
                                         int64_t images, int64_t channels, int64_t height, int64_t width,              \
                                         int64_t rows, int64_t columns, int64_t largest, int64_t *error) {             \
        if (*image < 0 || *image >= images) {                                                                          \
            *error = OPW_BAD_INDEX;                                                                                    \
            return;                                                                                                    \
        }                                                                                                              \
        const element *pixels = x + *image * channels * height * width;                                                \
        opw_axis_##T down = opw_axis_of_##T(place[0], place[2], rows, height);                                         \
        opw_axis_##T across = opw_axis_of_##T(place[1], place[3], columns, width);                                     \
        int64_t bins = rows * columns;                                                                                 \
        element all = down.count * across.count, counted = OPW_MAX(all, 1);                                            \
        for (int64_t bin = 0; bin < bins; bin++) {                                                                     \
            int64_t row = bin / columns, column = bin % columns;                                                       \
            element taken = 0;                                                                                         \
            for (int64_t c = 0; c < channels; c++) out[c * bins + bin] = 0;                                            \
            for (element i = opw_first_sample_##T(down, row); i < down.count && i + 1 > i; i++) {                      \
                element y = opw_sample_##T(down, row, i), v, u;                                                        \
                if (!(y <= (element)height)) break;                                                                    \
                if (!(y >= -1)) continue;                                                                              \
                int64_t top = opw_pixel_##T(y, height, &v), low = OPW_MIN(top + 1, height - 1);                        \
                for (element j = opw_first_sample_##T(across, column); j < across.count && j + 1 > j; j++) {           \
                    element at = opw_sample_##T(across, column, j);                                                    \
                    if (!(at <= (element)width)) break;                                                                \
                    if (!(at >= -1)) continue;                                                                         \
                    int64_t left = opw_pixel_##T(at, width, &u), right = OPW_MIN(left + 1, width - 1);                 \
                    element a = (1 - v) * (1 - u), b = (1 - v) * u, c_ = v * (1 - u), d = v * u;                       \
                    for (int64_t c = 0; c < channels; c++) {                                                           \
                        const element *plane = pixels + c * height * width;                                            \
                        element *sum = out + c * bins + bin;                                                           \
                        element e = a * plane[top * width + left], f = b * plane[top * width + right];                 \
                        element g = c_ * plane[low * width + left], h = d * plane[low * width + right];                \
                        element most = OPW_MAX(OPW_MAX(e, f), OPW_MAX(g, h));                                          \
                        *sum = !largest ? *sum + (e + f + g + h) : taken > 0 ? OPW_MAX(*sum, most) : most;             \
                    }                                                                                                  \
                    taken++;                                                                                           \
                }                                                                                                      \
            }                                                                                                          \
            for (int64_t c = 0; c < channels; c++) {                                                                   \
                element sum = out[c * bins + bin];                                                                     \
                out[c * bins + bin] = !largest ? sum / counted : taken < all ? OPW_MAX(sum, 0) : sum;                  \
            }                                                                                                          \
        }                                                                                                              \
    }
OPW_DEFINE_ALIGN(f32, float)
OPW_DEFINE_ALIGN(f64, double)

/* ---------------------------------------------------------------------------------------------------- probabilities */

/* `scratch` is a matrix and the gradient of the minimised sum by the probability of each class. */
OPW_EXTERN void opw_extern_couple_f32(const float *pairs, float *p, float *scratch, int64_t classes, int64_t count,
                                      int64_t *error) {
    (void)count, (void)error;
    float *slope = scratch + classes * classes;
    for (int64_t i = 0; i < classes; i++) {
        scratch[i * classes + i] = 0;
        p[i] = 1 / (float)classes;
    }
    for (int64_t i = 0; i < classes; i++)
        for (int64_t j = i + 1; j < classes; j++) {
            float first = *pairs++, second = 1 - first;
            scratch[i * classes + i] += second * second;
            scratch[j * classes + j] += first * first;
            scratch[i * classes + j] = scratch[j * classes + i] = -first * second;
        }
    for (int step = 0; step < 100; step++) {
        float total = 0, most = 0;
        for (int64_t i = 0; i < classes; i++) {
            slope[i] = 0;
            for (int64_t j = 0; j < classes; j++) slope[i] += scratch[i * classes + j] * p[j];
            total += p[i] * slope[i];
        }
        for (int64_t i = 0; i < classes; i++) {
            float apart = slope[i] < total ? total - slope[i] : slope[i] - total;
            most = OPW_MAX(most, apart);
        }
        if (most < 0.005f / (float)classes) return;
        for (int64_t i = 0; i < classes; i++) {
            const float *row = scratch + i * classes;
            float change = (total - slope[i]) / row[i], shrink = 1 + change;
            p[i] += change;
            total = (total + change * (change * row[i] + 2 * slope[i])) / shrink / shrink;
            for (int64_t j = 0; j < classes; j++) {
                slope[j] = (slope[j] + change * row[j]) / shrink;
                p[j] /= shrink;
            }
        }
    }
}

#endif
