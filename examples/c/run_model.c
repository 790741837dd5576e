/* Runs a compiled model, without Python:
 *
 *   run_model ARTIFACT [--input NAME=FILE.npy]... --output DIR [--threads N]
 *
 * reads every input from an .npy file and writes every output to DIR/NAME.npy. */
#include "npy.h"
#include "opweld.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char message[1024];

static void fail(const char *what) {
    fprintf(stderr, "run_model: %s\n", what);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes + 1);
    if (!memory) fail("no memory");
    return memory;
}

/* The position of the input named by NAME=FILE, whose FILE is stored. Names may hold '='. */
static int find_input(const opw_model *model, const char *argument, const char **file) {
    for (int i = 0; i < opw_input_count(model); i++) {
        const char *name = opw_input_name(model, i);
        size_t length = strlen(name);
        if (strncmp(argument, name, length) || argument[length] != '=') continue;
        *file = argument + length + 1;
        return i;
    }
    snprintf(message, sizeof message, "--input %.200s: expected NAME=FILE.npy with the name of an input", argument);
    fail(message);
    return -1;
}

/* DIR/NAME.npy; characters that mean something to a file system become '_', and then the position is appended. */
static void output_path(char *path, size_t capacity, const char *folder, const char *name, int position) {
    char safe[128];
    size_t length = 0;
    int changed = strlen(name) >= sizeof safe || name[0] == '.';
    for (; name[length] && length < sizeof safe - 1; length++) {
        int fine = isalnum((unsigned char)name[length]) || strchr("._-", name[length]);
        safe[length] = fine ? name[length] : '_';
        changed |= !fine;
    }
    safe[length] = 0;
    if (changed) snprintf(path, capacity, "%s/%s_%d.npy", folder, safe, position);
    else snprintf(path, capacity, "%s/%s.npy", folder, safe);
}

int main(int count, char **arguments) {
    const char *artifact = NULL, *folder = NULL;
    int threads = 0;
    for (int i = 1; i < count; i++) {
        const char *option = arguments[i];
        if (option[0] != '-' && !artifact) artifact = option;
        else if (i + 1 == count) fail("usage: run_model ARTIFACT [--input NAME=FILE.npy]... --output DIR [--threads N]");
        else if (!strcmp(option, "--output")) folder = arguments[++i];
        else if (!strcmp(option, "--threads")) threads = atoi(arguments[++i]);
        else if (!strcmp(option, "--input")) i++; /* below, when the names are known */
        else fail("usage: run_model ARTIFACT [--input NAME=FILE.npy]... --output DIR [--threads N]");
    }
    if (!artifact || !folder) fail("usage: run_model ARTIFACT [--input NAME=FILE.npy]... --output DIR [--threads N]");

    opw_model *model = opw_open(artifact, message, sizeof message);
    if (!model) fail(message);
    int n_inputs = opw_input_count(model), n_outputs = opw_output_count(model);
    opw_tensor *inputs = allocate((size_t)n_inputs * sizeof *inputs);
    opw_tensor *outputs = allocate((size_t)n_outputs * sizeof *outputs);
    void **input_data = allocate((size_t)n_inputs * sizeof *input_data);
    void **output_data = allocate((size_t)n_outputs * sizeof *output_data);

    for (int i = 1; i + 1 < count; i++) {
        if (strcmp(arguments[i], "--input")) continue;
        const char *file;
        int position = find_input(model, arguments[++i], &file);
        free(inputs[position].data);
        if (npy_read(file, &inputs[position], message, sizeof message)) fail(message);
        input_data[position] = inputs[position].data;
    }
    for (int i = 0; i < n_inputs; i++)
        if (!input_data[i]) {
            snprintf(message, sizeof message, "input '%s' is missing: --input NAME=FILE.npy", opw_input_name(model, i));
            fail(message);
        }

    /* Where shapes tell everything, bind once and run as often as you like. A model that decides as it runs is called. */
    const opw_plan *plan = NULL;
    opw_result *result = NULL;
    if (opw_segments(model)) {
        if (opw_call(model, inputs, threads, &result, message, sizeof message)) fail(message);
        for (int i = 0; i < n_outputs; i++) opw_result_output(result, i, &outputs[i]);
    } else {
        if (opw_bind(model, inputs, threads, &plan, message, sizeof message)) fail(message);
        for (int i = 0; i < n_outputs; i++) {
            opw_plan_output(plan, i, &outputs[i]);
            outputs[i].data = output_data[i] = allocate((size_t)npy_bytes(&outputs[i]));
        }
        if (opw_run(model, plan, input_data, output_data, message, sizeof message)) fail(message);
    }

    if (mkdir(folder, 0777) && errno != EEXIST) fail(strerror(errno));
    for (int i = 0; i < n_outputs; i++) {
        char path[4096];
        output_path(path, sizeof path, folder, opw_output_name(model, i), i);
        if (npy_write(path, &outputs[i], message, sizeof message)) fail(message);
        printf("%s\n", path);
    }

    for (int i = 0; i < n_inputs; i++) free(inputs[i].data);
    for (int i = 0; i < n_outputs; i++) free(output_data[i]);
    free(inputs);
    free(outputs);
    free(input_data);
    free(output_data);
    opw_plan_release(plan);
    opw_result_free(result);
    opw_close(model);
    return 0;
}
