/* Opens an artifact folder: module.so becomes tables and kernels, weights.bin becomes memory. */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* newer than the C library that we build for */
#endif

#ifndef OPW_VERSION
#define OPW_VERSION "0.1.0"
#endif

const char *opw_version(void) { return OPW_VERSION; }

static opw_model *open_models; /* guarded by opw_lock */

/* Whether `path` names another file among the loaded modules: then dlopen would return that one. */
static bool stale(const char *path, const opw_model *model) {
    for (const opw_model *other = open_models; other; other = other->next)
        if (!strcmp(other->module_path, path) && (other->inode != model->inode || other->device != model->device))
            return true;
    return false;
}

/* Loads `folder`/module.so, the present file: an artifact may have been replaced while the previous one is still open. */
static bool load_module(opw_model *model, const char *folder, char *message, size_t capacity) {
    enum { SPELLINGS = 256 };
    size_t room = strlen(folder) + sizeof "/module.so" + (size_t)2 * SPELLINGS;
    char *path = model->module_path = malloc(room);
    if (!path) {
        opw_message(message, capacity, "no memory to open '%s'", folder);
        return false;
    }
    snprintf(path, room, "%s/module.so", folder);
    struct stat file;
    if (stat(path, &file)) {
        opw_message(message, capacity, "cannot read '%s': %s", path, strerror(errno));
        return false;
    }
    model->device = (uint64_t)file.st_dev;
    model->inode = (uint64_t)file.st_ino;
    size_t end = strlen(folder);
    for (int spelling = 0; stale(path, model) && spelling < SPELLINGS; spelling++) {
        memcpy(path + end, "/.", 2);
        end += 2;
        snprintf(path + end, room - end, "/module.so");
    }
    model->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!model->library) {
        opw_message(message, capacity, "cannot load '%s': %s", path, dlerror());
        return false;
    }
    model->next = open_models;
    open_models = model;
    return true;
}

static bool map_weights(opw_model *model, const char *folder, char *message, size_t capacity) {
    int64_t expected = model->module->weights_bytes;
    if (!expected) return true;
    char path[4096];
    if (snprintf(path, sizeof path, "%s/weights.bin", folder) >= (int)sizeof path) {
        opw_message(message, capacity, "the path '%.64s...' is too long", folder);
        return false;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status)) {
        opw_message(message, capacity, "cannot read '%s': %s", path, strerror(errno));
        if (file >= 0) close(file);
        return false;
    }
    if ((int64_t)status.st_size != expected) {
        opw_message(message, capacity, "'%s' has %lld bytes, the module expects %lld: compile the model again", path,
                    (long long)status.st_size, (long long)expected);
        close(file);
        return false;
    }
    void *mapped = mmap(NULL, (size_t)expected, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (mapped == MAP_FAILED) {
        opw_message(message, capacity, "cannot map '%s': %s", path, strerror(errno));
        return false;
    }
    opw_advise(mapped, (size_t)expected); /* what is not in memory yet is read in huge pages, if the file system can */
    /* Mapping all pages at once takes a tenth of the page faults of the first run. If that is not supported, by a
     * Linux before 5.14, they are mapped by that run; weights that would fill the memory are mapped on demand. */
    bool whole = expected <= opw_memory_limit() / 2 && !madvise(mapped, (size_t)expected, MADV_POPULATE_READ);
    if (!whole) madvise(mapped, (size_t)expected, MADV_WILLNEED); /* reads ahead, in smaller pages */
    model->weights = mapped;
    return true;
}

static bool check_machine(const opw_model *model, char *message, size_t capacity) {
    const opw_module *module = model->module;
    if (!module || module->abi != OPW_ABI) {
        opw_message(message, capacity, "'%s' speaks interface %d, this runtime %d: compile the model again",
                    model->module_path, module ? (int)module->abi : 0, OPW_ABI);
        return false;
    }
    char feature[64];
    if (module->isa && !opw_cpu_supports(module->isa, feature, sizeof feature)) {
        opw_message(message, capacity,
                    "'%s' was compiled for %s, but this processor lacks %s: compile the model for this machine",
                    model->module_path, module->isa, feature);
        return false;
    }
    return true;
}

/* A model for each segment, with plans and memory of its own. */
static bool open_segments(opw_model *model, char *message, size_t capacity) {
    int32_t n = model->module->n_segments;
    if (!n) return true;
    model->segments = calloc((size_t)n, sizeof *model->segments);
    if (!model->segments) {
        opw_message(message, capacity, "no memory for %d segments", (int)n);
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        model->segments[i].module = model->module->segments[i].module;
        model->segments[i].weights = model->weights;
    }
    return true;
}

static void forget(opw_model *model) {
    for (int32_t i = 0; i < model->n_plans; i++) opw_plan_release(model->plans[i]);
    while (model->blocks) {
        opw_block *block = model->blocks;
        model->blocks = block->next;
        free(block->memory);
        free(block->pointers);
        free(block);
    }
}

opw_model *opw_open(const char *folder, char *message, size_t capacity) {
    opw_model *model = calloc(1, sizeof *model);
    if (!model) {
        opw_message(message, capacity, "no memory to open '%s'", folder);
        return NULL;
    }
    opw_lock();
    bool loaded = load_module(model, folder, message, capacity);
    opw_unlock();
    if (!loaded) goto failed;
    opw_entry entry;
    *(void **)&entry = dlsym(model->library, "opw_module_entry");
    if (!entry) {
        opw_message(message, capacity, "'%s' is not an opweld module", model->module_path);
        goto failed;
    }
    model->module = entry();
    if (!check_machine(model, message, capacity)) goto failed;
    if (!opw_check_module(model->module, message, capacity)) goto failed;
    if (!map_weights(model, folder, message, capacity)) goto failed;
    if (!open_segments(model, message, capacity)) goto failed;
    return model;
failed:
    opw_close(model);
    return NULL;
}

void opw_close(opw_model *model) {
    if (!model) return;
    for (int32_t i = 0; model->segments && i < model->module->n_segments; i++) forget(&model->segments[i]);
    free(model->segments);
    forget(model);
    if (model->weights) munmap((void *)model->weights, (size_t)model->module->weights_bytes);
    opw_lock();
    for (opw_model **at = &open_models; *at; at = &(*at)->next)
        if (*at == model) {
            *at = model->next;
            break;
        }
    if (model->library) dlclose(model->library);
    opw_unlock();
    free(model->module_path);
    free(model);
}

int32_t opw_input_count(const opw_model *model) {
    const opw_module *module = model->module;
    return module->n_inputs - module->n_states - opw_has_lengths(module);
}

static bool is_input(const opw_model *model, int32_t i) { return i >= 0 && i < opw_input_count(model); }

const char *opw_input_name(const opw_model *model, int32_t i) {
    return is_input(model, i) ? model->module->inputs[i].name : NULL;
}
int32_t opw_input_dtype(const opw_model *model, int32_t i) {
    return is_input(model, i) ? model->module->inputs[i].dtype : 0;
}
int32_t opw_input_rank(const opw_model *model, int32_t i) {
    return is_input(model, i) ? model->module->inputs[i].rank : 0;
}
int32_t opw_input_by_value(const opw_model *model, int32_t i) {
    return is_input(model, i) ? model->module->inputs[i].by_value : 0;
}
int32_t opw_segments(const opw_model *model) { return model->module->n_segments; }
int32_t opw_output_count(const opw_model *model) { return model->module->n_outputs; }
const char *opw_output_name(const opw_model *model, int32_t i) {
    return i >= 0 && i < model->module->n_outputs ? model->module->output_names[i] : NULL;
}
