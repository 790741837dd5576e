/* Reads and writes .npy files of dense row-major arrays. */
#ifndef NPY_H
#define NPY_H

#include "opweld.h"

/* Reads `path`; tensor->data is malloc'ed. Returns 0, or -1 with one line in `message`. */
int npy_read(const char *path, opw_tensor *tensor, char *message, size_t capacity);

/* Writes the tensor. Returns 0, or -1 with one line in `message`. */
int npy_write(const char *path, const opw_tensor *tensor, char *message, size_t capacity);

/* Bytes of the tensor's elements, or -1 when they overflow. */
int64_t npy_bytes(const opw_tensor *tensor);

#endif
