#include "npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *descr;
    int32_t dtype;
    int64_t size;
} TYPES[] = {
    {"<f4", OPW_FLOAT32, 4}, {"<f8", OPW_FLOAT64, 8}, {"<f2", OPW_FLOAT16, 2}, {"|i1", OPW_INT8, 1},
    {"<i2", OPW_INT16, 2},   {"<i4", OPW_INT32, 4},   {"<i8", OPW_INT64, 8},   {"|u1", OPW_UINT8, 1},
    {"<u2", OPW_UINT16, 2},  {"<u4", OPW_UINT32, 4},  {"<u8", OPW_UINT64, 8},  {"|b1", OPW_BOOL, 1},
    {"<V2", OPW_BFLOAT16, 2}, /* what numpy makes of a type it does not know */
};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES, MAX_HEADER = 1 << 16 };

int64_t npy_bytes(const opw_tensor *tensor) {
    int64_t bytes = opw_dtype_size(tensor->dtype);
    for (int32_t axis = 0; axis < tensor->rank; axis++)
        if (tensor->shape[axis] < 0 || __builtin_mul_overflow(bytes, tensor->shape[axis], &bytes)) return -1;
    return bytes;
}

/* The text after `key` in the header's dictionary, or NULL. */
static const char *value_of(const char *header, const char *key) {
    const char *at = strstr(header, key);
    return at ? at + strlen(key) : NULL;
}

/* Parses {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } */
static int parse_header(const char *header, opw_tensor *tensor) {
    const char *descr = value_of(header, "'descr': '");
    const char *shape = value_of(header, "'shape': (");
    if (!descr || !shape || !strstr(header, "'fortran_order': False")) return -1;
    tensor->dtype = 0;
    for (int i = 0; i < N_TYPES; i++)
        if (!strncmp(descr + 1, TYPES[i].descr + 1, 2) && descr[3] == '\'' && descr[0] != '>')
            tensor->dtype = TYPES[i].dtype;
    if (!tensor->dtype) return -1;
    for (tensor->rank = 0; *shape != ')';) {
        char *end;
        errno = 0;
        long long dim = strtoll(shape, &end, 10);
        if (end == shape || errno || dim < 0 || tensor->rank == OPW_MAX_RANK) return -1;
        tensor->shape[tensor->rank++] = dim;
        shape = end + strspn(end, ", ");
    }
    return 0;
}

int npy_read(const char *path, opw_tensor *tensor, char *message, size_t capacity) {
    FILE *file = fopen(path, "rb");
    char *header = NULL;
    tensor->data = NULL;
    if (!file) {
        snprintf(message, capacity, "cannot read %s: %s", path, strerror(errno));
        return -1;
    }
    unsigned char start[12];
    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6)) goto bad;
    size_t length = start[8] | (size_t)start[9] << 8; /* version 1: two bytes; later: four */
    if (start[6] > 1) {
        if (fread(start + 10, 1, 2, file) != 2) goto bad;
        length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    if (length > MAX_HEADER || !(header = calloc(1, length + 1))) goto bad;
    if (fread(header, 1, length, file) != length || parse_header(header, tensor)) goto bad;
    int64_t bytes = npy_bytes(tensor);
    if (bytes < 0) goto bad;
    tensor->data = malloc((size_t)bytes + 1);
    if (!tensor->data || fread(tensor->data, 1, (size_t)bytes, file) != (size_t)bytes) goto bad;
    free(header);
    fclose(file);
    return 0;
bad:
    snprintf(message, capacity, "%s is no .npy file of a row-major little-endian array", path);
    free(tensor->data);
    free(header);
    fclose(file);
    tensor->data = NULL;
    return -1;
}

int npy_write(const char *path, const opw_tensor *tensor, char *message, size_t capacity) {
    char header[512];
    const char *descr = "";
    for (int i = 0; i < N_TYPES; i++)
        if (TYPES[i].dtype == tensor->dtype) descr = TYPES[i].descr;
    int used = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int32_t axis = 0; axis < tensor->rank; axis++)
        used += snprintf(header + used, sizeof header - (size_t)used, "%lld,", (long long)tensor->shape[axis]);
    used += snprintf(header + used, sizeof header - (size_t)used, "), }");
    while ((10 + used + 1) % 64) header[used++] = ' ';
    header[used++] = '\n';
    unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, used & 255, used >> 8};
    size_t bytes = (size_t)npy_bytes(tensor);
    FILE *file = fopen(path, "wb");
    int good = file && fwrite(start, 1, 10, file) == 10 && fwrite(header, 1, (size_t)used, file) == (size_t)used &&
               fwrite(tensor->data, 1, bytes, file) == bytes;
    if (file && fclose(file)) good = 0;
    if (!good) snprintf(message, capacity, "cannot write %s: %s", path, strerror(errno));
    return good ? 0 : -1;
}
