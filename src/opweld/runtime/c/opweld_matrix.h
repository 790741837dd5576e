/* The registers of a matrix unit: eight, each of up to 16 rows of 16 words of 32 bits.
 *
 *   OPW_MATRIX m = opw_matrix_start()       before all others; the unit is given back at the end of the block
 *   shape(&m, down, across, rows, steps)    what registers hold from now on: first down * across accumulators, by rows,
 *                                           then `down` of words of so many rows, 16 in each but the last; the others
 *                                           are `steps` rows of 16 lanes. Another shape than before empties them
 *   zero(&m, t)                             register t
 *   load(&m, t, p, stride)                  rows of words, a number of words apart
 *   store(&m, t, p, stride)
 *   dot4(&m, sum, x, y)                     sum[r][l] += x[r][k] . y[k][l], for all k, of four bytes each: those of x
 *                                           unsigned, of y signed. dot4_swapped: signed, unsigned
 *   dot2(&m, sum, x, y)                     of two bfloat16 each; how the sums are rounded is the unit's
 *
 * each with opw_matrix_ before it; register numbers are literals. With AMX each is one instruction. Other processors
 * have the same integers, and bfloat16 products that are added one after the other.
 */
#ifndef OPWELD_MATRIX_H
#define OPWELD_MATRIX_H

#include "opweld_vector.h"

enum { OPW_MATRIX_ROWS = 16, OPW_MATRIX_REGISTERS = 8 };

/* The rows of register t, one at least, and the words of each, in a shape. */
OPW_INLINE int opw_matrix_height(int t, int down, int across, int64_t rows, int steps) {
    int sums = down * across, part = t < sums ? t / across : t - sums;
    int64_t left = rows - OPW_MATRIX_ROWS * part;
    if (t >= sums + down) return steps;
    return left < 1 ? 1 : left > OPW_MATRIX_ROWS ? OPW_MATRIX_ROWS : (int)left;
}

OPW_INLINE int opw_matrix_width(int t, int down, int across, int steps) {
    return t >= down * across && t < down * across + down ? steps : OPW_MATRIX_ROWS;
}

#if defined(OPW_AVX512) && defined(__AMX_TILE__)

typedef struct {
    int64_t rows; /* of the shape that the registers have; 0: none */
    int down, across, steps;
} opw_matrix;

/* gcc does not know what these instructions read. */
#if defined(__clang__)
#define OPW_MATRIX_READS(p) ((void)0)
#else
#define OPW_MATRIX_READS(p) __asm__ volatile("" : : "r"(p) : "memory")
#endif

OPW_INLINE void opw_matrix_end(opw_matrix *m) {
    if (m->rows) _tile_release();
}

OPW_INLINE void opw_matrix_shape(opw_matrix *m, int down, int across, int64_t rows, int steps) {
    if (m->rows == rows && m->down == down && m->across == across && m->steps == steps) return;
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape __attribute__((aligned(64))) = {1, 0, {0}, {0}, {0}};
    for (int t = 0; t < OPW_MATRIX_REGISTERS; t++) {
        shape.rows[t] = (uint8_t)opw_matrix_height(t, down, across, rows, steps);
        shape.bytes[t] = (uint16_t)(4 * opw_matrix_width(t, down, across, steps));
    }
    OPW_MATRIX_READS(&shape);
    _tile_loadconfig(&shape);
    *m = (opw_matrix){rows, down, across, steps};
}

#define opw_matrix_zero(m, t) _tile_zero(t)
#define opw_matrix_load(m, t, p, stride)      \
    do {                                      \
        OPW_MATRIX_READS(p);                  \
        _tile_loadd(t, p, 4 * (stride));      \
    } while (0)
#define opw_matrix_store(m, t, p, stride) _tile_stored(t, p, 4 * (stride))
#define opw_matrix_dot4(m, sum, x, y) _tile_dpbusd(sum, x, y)
#define opw_matrix_dot4_swapped(m, sum, x, y) _tile_dpbsud(sum, x, y)
#define opw_matrix_dot4_signed(m, sum, x, y) _tile_dpbssd(sum, x, y)
#define opw_matrix_dot2(m, sum, x, y) _tile_dpbf16ps(sum, x, y)

#else

typedef struct {
    int64_t shaped;
    int down, across, steps;
    int rows[OPW_MATRIX_REGISTERS], words[OPW_MATRIX_REGISTERS];
    int32_t data[OPW_MATRIX_REGISTERS][OPW_MATRIX_ROWS][OPW_MATRIX_ROWS];
} opw_matrix;

OPW_INLINE void opw_matrix_end(opw_matrix *m) { (void)m; }

OPW_INLINE void opw_matrix_zero(opw_matrix *m, int t) { memset(m->data[t], 0, sizeof m->data[t]); }

OPW_INLINE void opw_matrix_shape(opw_matrix *m, int down, int across, int64_t rows, int steps) {
    if (m->shaped == rows && m->down == down && m->across == across && m->steps == steps) return;
    for (int t = 0; t < OPW_MATRIX_REGISTERS; t++) {
        m->rows[t] = opw_matrix_height(t, down, across, rows, steps);
        m->words[t] = opw_matrix_width(t, down, across, steps);
        opw_matrix_zero(m, t);
    }
    m->shaped = rows, m->down = down, m->across = across, m->steps = steps;
}

OPW_INLINE void opw_matrix_load(opw_matrix *m, int t, const void *p, int64_t stride) {
    for (int row = 0; row < m->rows[t]; row++)
        memcpy(m->data[t][row], (const int32_t *)p + row * stride, 4 * (size_t)m->words[t]);
}

OPW_INLINE void opw_matrix_store(opw_matrix *m, int t, void *p, int64_t stride) {
    for (int row = 0; row < m->rows[t]; row++)
        memcpy((int32_t *)p + row * stride, m->data[t][row], 4 * (size_t)m->words[t]);
}

OPW_INLINE int32_t opw_matrix_byte(int32_t word, int at, int is_signed) {
    uint32_t byte = (uint32_t)word >> 8 * at & 255;
    return (int32_t)byte - (is_signed && byte > 127 ? 256 : 0);
}

OPW_INLINE void opw_matrix_bytes(opw_matrix *m, int sum, int x, int y, int x_signed, int y_signed) {
    for (int row = 0; row < m->rows[sum]; row++)
        for (int lane = 0; lane < OPW_MATRIX_ROWS; lane++)
            for (int step = 0; step < m->words[x]; step++)
                for (int at = 0; at < 4; at++) {
                    int32_t product = opw_matrix_byte(m->data[x][row][step], at, x_signed) *
                                      opw_matrix_byte(m->data[y][step][lane], at, y_signed);
                    m->data[sum][row][lane] = (int32_t)((uint32_t)m->data[sum][row][lane] + (uint32_t)product);
                }
}

OPW_INLINE void opw_matrix_dot4(opw_matrix *m, int sum, int x, int y) { opw_matrix_bytes(m, sum, x, y, 0, 1); }
OPW_INLINE void opw_matrix_dot4_swapped(opw_matrix *m, int sum, int x, int y) { opw_matrix_bytes(m, sum, x, y, 1, 0); }
OPW_INLINE void opw_matrix_dot4_signed(opw_matrix *m, int sum, int x, int y) { opw_matrix_bytes(m, sum, x, y, 1, 1); }

OPW_INLINE float opw_matrix_float(int32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

OPW_INLINE void opw_matrix_dot2(opw_matrix *m, int sum, int x, int y) {
    for (int row = 0; row < m->rows[sum]; row++)
        for (int lane = 0; lane < OPW_MATRIX_ROWS; lane++) {
            float total = opw_matrix_float(m->data[sum][row][lane]);
            for (int step = 0; step < m->words[x]; step++) {
                uint32_t one = (uint32_t)m->data[x][row][step], other = (uint32_t)m->data[y][step][lane];
                total += opw_matrix_float((int32_t)(one << 16)) * opw_matrix_float((int32_t)(other << 16));
                total += opw_matrix_float((int32_t)(one >> 16 << 16)) * opw_matrix_float((int32_t)(other >> 16 << 16));
            }
            memcpy(&m->data[sum][row][lane], &total, sizeof total);
        }
}

#endif

#define OPW_MATRIX __attribute__((cleanup(opw_matrix_end))) opw_matrix

OPW_INLINE opw_matrix opw_matrix_start(void) {
    opw_matrix m;
    memset(&m, 0, sizeof m);
    return m;
}

#endif
