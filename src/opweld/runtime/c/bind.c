/* A cache of plans by input shapes and by-value inputs: a new shape costs one evaluation, a known one a look-up. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#define MAX_VALUE_BYTES 65536 /* of one by-value input: shapes, axes, repeats, never data */

static int32_t check_input(const opw_input *expected, const opw_tensor *given, int64_t *value_bytes, char *message,
                           size_t capacity) {
    *value_bytes = 0;
    if (given->dtype != expected->dtype) {
        opw_message(message, capacity, "input '%s': expected element type %d, got %d", expected->name,
                    (int)expected->dtype, (int)given->dtype);
        return OPW_INVALID_INPUT;
    }
    bool fits = expected->rank < 0 ? given->rank >= 0 && given->rank <= OPW_MAX_RANK : given->rank == expected->rank;
    if (!fits) {
        opw_message(message, capacity, "input '%s': expected %d dimensions, got %d", expected->name,
                    (int)expected->rank, (int)given->rank);
        return OPW_INVALID_INPUT;
    }
    int64_t bytes = opw_dtype_size(given->dtype);
    bool empty = false;
    for (int32_t axis = 0; axis < given->rank; axis++) {
        int64_t dim = given->shape[axis];
        empty |= dim == 0;
        if (dim >= 0 && (dim == 0 || !__builtin_mul_overflow(bytes, dim, &bytes))) continue;
        opw_message(message, capacity, "input '%s': dimension %d is %lld", expected->name, (int)axis, (long long)dim);
        return OPW_INVALID_INPUT;
    }
    if (!expected->by_value || empty) return OPW_OK;
    if (bytes > MAX_VALUE_BYTES || !given->data) {
        opw_message(message, capacity, "input '%s': its values choose shapes, so it needs data, at most %d bytes",
                    expected->name, MAX_VALUE_BYTES);
        return OPW_INVALID_INPUT;
    }
    *value_bytes = bytes;
    return OPW_OK;
}

static void key_put(opw_key *key, const void *data, size_t bytes) {
    memcpy(key->data + key->bytes, data, bytes);
    key->bytes += bytes;
}

/* The key: threads, then rank and dims of each input, and its bytes if it is by value. */
int32_t opw_key_make(const opw_module *module, const opw_tensor *inputs, int32_t n, bool by_value, int32_t threads,
                     opw_key *key, char *message, size_t capacity) {
    int64_t value_bytes;
    size_t room = sizeof threads;
    for (int32_t i = 0; i < n; i++) {
        int32_t status = check_input(&module->inputs[i], &inputs[i], &value_bytes, message, capacity);
        if (status != OPW_OK) return status;
        room += sizeof(int32_t) + sizeof inputs[i].shape + (size_t)value_bytes;
    }
    key->data = malloc(room);
    key->values = calloc((size_t)module->n_inputs + 1, sizeof *key->values);
    if (!key->data || !key->values) {
        opw_message(message, capacity, "no memory for a key of %zu bytes", room);
        return OPW_NO_MEMORY;
    }
    key_put(key, &threads, sizeof threads);
    for (int32_t i = 0; i < n; i++) {
        key_put(key, &inputs[i].rank, sizeof inputs[i].rank);
        key_put(key, inputs[i].shape, (size_t)inputs[i].rank * sizeof(int64_t));
        check_input(&module->inputs[i], &inputs[i], &value_bytes, NULL, 0);
        if (!value_bytes || !by_value) continue;
        key->values[i] = key->data + key->bytes;
        key_put(key, inputs[i].data, (size_t)value_bytes);
    }
    key->hash = 1469598103934665603ULL; /* FNV-1a */
    for (size_t i = 0; i < key->bytes; i++) key->hash = (key->hash ^ (uint8_t)key->data[i]) * 1099511628211ULL;
    return OPW_OK;
}

bool opw_key_is(const opw_key *key, const opw_plan *plan) {
    return plan->hash == key->hash && plan->key_bytes == key->bytes && !memcmp(plan->key, key->data, key->bytes);
}

void opw_key_give(opw_key *key, opw_plan *plan) {
    plan->hash = key->hash;
    plan->key_bytes = key->bytes;
    plan->key = key->data;
    plan->values = key->values;
    *key = (opw_key){0};
}

void opw_key_free(opw_key *key) {
    free(key->data);
    free(key->values);
    *key = (opw_key){0};
}

bool opw_count_threads(int32_t *threads, char *message, size_t capacity) {
    if (*threads < 0 || *threads > OPW_MAX_THREADS) {
        opw_message(message, capacity, "threads must be 0 to %d, got %d", OPW_MAX_THREADS, (int)*threads);
        return false;
    }
    int32_t processors = opw_processors();
    if (!*threads || *threads > processors) *threads = processors;
    return true;
}

/* Under the lock: the plan of this key with one more reference, or NULL. */
static opw_plan *find_plan(opw_model *model, const opw_key *key) {
    for (int32_t i = 0; i < model->n_plans; i++) {
        opw_plan *plan = model->plans[i];
        if (!opw_key_is(key, plan)) continue;
        plan->last_used = ++model->clock;
        atomic_fetch_add(&plan->references, 1);
        return plan;
    }
    return NULL;
}

/* Under the lock: caches the plan; returns the evicted one (least recently used), or NULL. */
static opw_plan *remember(opw_model *model, opw_plan *plan) {
    plan->last_used = ++model->clock;
    atomic_fetch_add(&plan->references, 1);
    if (model->n_plans < OPW_MAX_PLANS) {
        model->plans[model->n_plans++] = plan;
        return NULL;
    }
    int32_t oldest = 0;
    for (int32_t i = 1; i < model->n_plans; i++)
        if (model->plans[i]->last_used < model->plans[oldest]->last_used) oldest = i;
    opw_plan *evicted = model->plans[oldest];
    model->plans[oldest] = plan;
    return evicted;
}

int32_t opw_bind(opw_model *model, const opw_tensor *inputs, int32_t threads, const opw_plan **bound, char *message,
                 size_t capacity) {
    *bound = NULL;
    if (!opw_count_threads(&threads, message, capacity)) return OPW_INVALID_INPUT;
    if (model->module->n_states) {
        opw_message(message, capacity, "the model has states: begin a run with one of them, opw_state_begin");
        return OPW_INVALID_INPUT;
    }
    opw_key key = {0};
    opw_plan *plan = NULL, *evicted = NULL;
    int32_t status = opw_key_make(model->module, inputs, model->module->n_inputs, true, threads, &key, message, capacity);
    if (status != OPW_OK) goto done;
    opw_lock();
    plan = find_plan(model, &key);
    opw_unlock();
    if (plan) goto done;

    /* Made without the lock, so that other calls continue; if two threads make the same plan, the first one is kept. */
    opw_plan *made = NULL;
    status = opw_plan_make(model, inputs, threads, &made, message, capacity);
    if (status != OPW_OK) goto done;
    opw_key kept = key;
    opw_key_give(&key, made);
    atomic_store(&made->references, 1);
    opw_lock();
    plan = find_plan(model, &kept);
    if (!plan) {
        evicted = remember(model, made);
        plan = made;
    }
    opw_unlock();
    if (plan != made) opw_plan_release(made);
    if (evicted) opw_plan_release(evicted);
    *bound = plan;
    return OPW_OK;

done:
    opw_key_free(&key);
    *bound = plan;
    return status;
}

void opw_plan_release(const opw_plan *plan) {
    opw_plan *owned = (opw_plan *)plan;
    if (owned && atomic_fetch_sub(&owned->references, 1) == 1) opw_plan_free(owned);
}
