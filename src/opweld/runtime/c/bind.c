/* Remembers plans by input shapes and by-value inputs: a new shape costs one evaluation, a known one a look-up. */
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

typedef struct {
    size_t bytes;
    char *data;
    const char **values;
    uint64_t hash;
} memo_key;

static void key_put(memo_key *key, const void *data, size_t bytes) {
    memcpy(key->data + key->bytes, data, bytes);
    key->bytes += bytes;
}

/* The key: threads, then rank and dims of each input, and its bytes where it is by value. */
static int32_t make_key(const opw_module *module, const opw_tensor *inputs, int32_t threads, memo_key *key,
                        char *message, size_t capacity) {
    int64_t value_bytes;
    size_t room = sizeof threads;
    for (int32_t i = 0; i < module->n_inputs; i++) {
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
    for (int32_t i = 0; i < module->n_inputs; i++) {
        key_put(key, &inputs[i].rank, sizeof inputs[i].rank);
        key_put(key, inputs[i].shape, (size_t)inputs[i].rank * sizeof(int64_t));
        check_input(&module->inputs[i], &inputs[i], &value_bytes, NULL, 0);
        if (!value_bytes) continue;
        key->values[i] = key->data + key->bytes;
        key_put(key, inputs[i].data, (size_t)value_bytes);
    }
    key->hash = 1469598103934665603ULL; /* FNV-1a */
    for (size_t i = 0; i < key->bytes; i++) key->hash = (key->hash ^ (uint8_t)key->data[i]) * 1099511628211ULL;
    return OPW_OK;
}

/* Under the lock: the plan of this key with one more reference, or NULL. */
static opw_plan *find(opw_model *model, const memo_key *key) {
    for (int32_t i = 0; i < model->n_plans; i++) {
        opw_plan *plan = model->plans[i];
        if (plan->hash != key->hash || plan->key_bytes != key->bytes || memcmp(plan->key, key->data, key->bytes))
            continue;
        plan->last_used = ++model->clock;
        atomic_fetch_add(&plan->references, 1);
        return plan;
    }
    return NULL;
}

/* Under the lock: remembers the plan; returns the one it pushed out, the longest unused, or NULL. */
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
    if (threads < 0 || threads > OPW_MAX_THREADS) {
        opw_message(message, capacity, "threads must be 0 to %d, got %d", OPW_MAX_THREADS, (int)threads);
        return OPW_INVALID_INPUT;
    }
    int32_t processors = opw_processors();
    if (!threads || threads > processors) threads = processors;
    memo_key key = {0};
    opw_plan *plan = NULL, *evicted = NULL;
    int32_t status = make_key(model->module, inputs, threads, &key, message, capacity);
    if (status != OPW_OK) goto done;
    opw_lock();
    plan = find(model, &key);
    opw_unlock();
    if (plan) goto done;

    /* Made without the lock, so that other calls run on; should two threads make the same plan, the first one stays. */
    opw_plan *made = NULL;
    status = opw_plan_make(model, inputs, threads, &made, message, capacity);
    if (status != OPW_OK) goto done;
    made->hash = key.hash;
    made->key_bytes = key.bytes;
    made->key = key.data;
    made->values = key.values;
    atomic_store(&made->references, 1);
    opw_lock();
    plan = find(model, &key);
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
    free(key.data);
    free(key.values);
    *bound = plan;
    return status;
}

void opw_plan_release(const opw_plan *plan) {
    opw_plan *owned = (opw_plan *)plan;
    if (owned && atomic_fetch_sub(&owned->references, 1) == 1) opw_plan_free(owned);
}
