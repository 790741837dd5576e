/* Places buffers with known lifetimes in one arena: greedy by size, best fit. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int32_t id, first, last;
    int64_t size, offset, weight;
} item;

static int by_weight(const void *left, const void *right) {
    const item *a = left, *b = right;
    if (a->weight != b->weight) return a->weight < b->weight ? 1 : -1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* Places `items` in their order. `placed` has room for n. Returns the peak, or -1 when an offset overflows. */
static int64_t place(item *items, int32_t n, item **placed) {
    int64_t peak = 0;
    for (int32_t i = 0; i < n; i++) {
        item *next = &items[i];
        int64_t end = 0, best = -1, best_gap = INT64_MAX;
        for (int32_t j = 0; j < i; j++) { /* placed[0..i) is sorted by offset */
            const item *other = placed[j];
            if (other->last < next->first || next->last < other->first) continue;
            int64_t gap = other->offset - end;
            if (gap >= next->size && gap < best_gap) {
                best = end;
                best_gap = gap;
            }
            if (other->offset + other->size > end) end = other->offset + other->size;
        }
        next->offset = best >= 0 ? best : end;
        if (next->offset > INT64_MAX - next->size) return -1;
        if (next->offset + next->size > peak) peak = next->offset + next->size;
        int32_t position = i;
        while (position > 0 && placed[position - 1]->offset > next->offset) position--;
        memmove(placed + position + 1, placed + position, (size_t)(i - position) * sizeof *placed);
        placed[position] = next;
    }
    return peak;
}

/* The largest sum of sizes alive in one phase. */
static int64_t largest_live(const item *items, int32_t n, int64_t *change, int32_t phases) {
    memset(change, 0, ((size_t)phases + 1) * sizeof *change);
    for (int32_t i = 0; i < n; i++) {
        change[items[i].first] += items[i].size;
        change[items[i].last + 1] -= items[i].size;
    }
    int64_t live = 0, largest = 0;
    for (int32_t phase = 0; phase < phases; phase++) {
        live += change[phase];
        if (live > largest) largest = live;
    }
    return largest;
}

int32_t opw_arena_plan(int32_t n, const int64_t *sizes, const int32_t *first, const int32_t *last, int64_t *offsets,
                       int64_t *totals) {
    totals[0] = totals[1] = totals[2] = 0;
    if (n <= 0) return n < 0 ? OPW_BAD_MODULE : OPW_OK;
    int32_t phases = 0;
    for (int32_t i = 0; i < n; i++) {
        if (first[i] < 0 || last[i] < first[i] || last[i] == INT32_MAX) return OPW_BAD_MODULE;
        if (last[i] >= phases) phases = last[i] + 1;
    }
    item *items = malloc((size_t)n * sizeof *items);
    item **placed = malloc((size_t)n * sizeof *placed);
    int64_t *change = malloc(((size_t)phases + 1) * sizeof *change);
    int32_t status = OPW_NO_MEMORY;
    if (!items || !placed || !change) goto done;

    int32_t count = 0;
    status = OPW_TOO_LARGE;
    for (int32_t i = 0; i < n; i++) {
        offsets[i] = 0;
        if (sizes[i] < 0 || sizes[i] > INT64_MAX - OPW_ALIGNMENT) goto done;
        if (sizes[i] == 0) continue;
        int64_t size = (sizes[i] + OPW_ALIGNMENT - 1) / OPW_ALIGNMENT * OPW_ALIGNMENT;
        if (__builtin_add_overflow(totals[1], size, &totals[1])) goto done;
        items[count++] = (item){.id = i, .first = first[i], .last = last[i], .size = size, .weight = size};
    }
    totals[2] = largest_live(items, count, change, phases);

    /* The order by size is mostly better, that by size times lifetime sometimes: take the better result. */
    totals[0] = INT64_MAX;
    for (int attempt = 0; attempt < 2 && totals[0] > totals[2]; attempt++) {
        for (int32_t i = 0; attempt && i < count; i++) {
            int64_t duration = (int64_t)items[i].last - items[i].first + 1;
            if (__builtin_mul_overflow(items[i].size, duration, &items[i].weight)) items[i].weight = INT64_MAX;
        }
        qsort(items, (size_t)count, sizeof *items, by_weight);
        int64_t peak = place(items, count, placed);
        if (peak < 0) goto done;
        if (peak >= totals[0]) continue;
        totals[0] = peak;
        for (int32_t i = 0; i < count; i++) offsets[items[i].id] = items[i].offset;
    }
    status = OPW_OK;
done:
    free(items);
    free(placed);
    free(change);
    return status;
}
