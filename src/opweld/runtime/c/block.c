/* The memory of calls: blocks that are reused by later calls, each with the pointer table of its last plan. */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE (2 << 20)

size_t opw_page_of(size_t bytes) { return bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : OPW_ALIGNMENT; }

void opw_advise(void *memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
    if (opw_page_of(bytes) == HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
}

static char *allocate_block(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, opw_page_of(bytes), bytes)) return NULL;
    opw_advise(memory, bytes);
    return memory;
}

/* The best-fitting free block; else one that `fit` will enlarge; NULL if there is none. */
static opw_block *find_block(opw_model *model, size_t bytes) {
    opw_lock();
    opw_block **best = NULL;
    for (opw_block **at = &model->blocks; *at; at = &(*at)->next) {
        if (!best) {
            best = at;
            continue;
        }
        bool fits = (*at)->capacity >= bytes, best_fits = (*best)->capacity >= bytes;
        if (fits && (!best_fits || (*at)->capacity < (*best)->capacity)) best = at;
    }
    opw_block *block = best ? *best : NULL;
    if (block) *best = block->next;
    opw_unlock();
    return block;
}

/* Makes the block's memory and table large enough for the plan. */
static bool fit(opw_block *block, const opw_plan *plan, size_t bytes) {
    if (block->capacity < bytes || !block->memory) {
        free(block->memory);
        block->plan_id = 0;
        block->memory = allocate_block(bytes);
        block->capacity = block->memory ? bytes : 0;
    }
    if (block->pointer_capacity < (size_t)plan->n_sources || !block->pointers) {
        free(block->pointers);
        block->plan_id = 0;
        block->pointers = malloc(((size_t)plan->n_sources + 1) * sizeof *block->pointers);
        block->pointer_capacity = block->pointers ? (size_t)plan->n_sources : 0;
    }
    return block->memory && block->pointers;
}

opw_block *opw_block_take(opw_model *model, const opw_plan *plan, size_t bytes) {
    opw_block *block = find_block(model, bytes);
    if (!block) block = calloc(1, sizeof *block);
    if (!block || fit(block, plan, bytes)) return block;
    opw_block_give(model, block);
    return NULL;
}

void opw_block_give(opw_model *model, opw_block *block) {
    opw_lock();
    block->next = model->blocks;
    model->blocks = block;
    opw_unlock();
}

/* A block last used with this plan only needs the caller's pointers. */
void opw_block_point(const opw_model *model, const opw_plan *plan, opw_block *block, void *const *inputs,
                     void *const *outputs) {
    if (block->plan_id != plan->id) {
        for (int64_t i = 0; i < plan->n_sources; i++) {
            const opw_source *source = &plan->sources[i];
            if (source->kind == OPW_CONSTANT) block->pointers[i] = (char *)model->weights + source->offset;
            if (source->kind == OPW_ARENA) block->pointers[i] = block->memory + source->offset;
        }
        block->plan_id = plan->id;
    }
    for (int64_t k = 0; k < plan->n_external; k++) {
        int64_t i = plan->external[k];
        const opw_source *source = &plan->sources[i];
        void *const *given = source->kind == OPW_INPUT ? inputs : outputs;
        block->pointers[i] = given[source->index];
    }
}
