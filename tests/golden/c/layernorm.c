// layernorm
// buffers: x f32 read, gamma f32 read, beta f32 read, y f32 write
// grid: r < 3
//   sum[l] = 0.0
//   for c below 3:
//     lane tile l of 32 from 32*c, below 77:
//       sum = sum(sum, x[32*c + l + 77*r])
//   sum = sum of the lanes of sum
//   mean = mul(sum[], reciprocal(add(0.0, f32(77))))
//   square[l] = 0.0
//   for c below 3:
//     lane tile l of 32 from 32*c, below 77:
//       square = sum(square, mul(sub(x[32*c + l + 77*r], mean[]), sub(x[32*c + l + 77*r], mean[])))
//   square = sum of the lanes of square
//   scale = rsqrt(add(mul(square[], reciprocal(add(0.0, f32(77)))), 9.999999747378752e-06))
//   for c below 3:
//     lane tile l of 32 from 32*c, below 77:
//       y[32*c + l + 77*r] = add(mul(mul(sub(x[32*c + l + 77*r], mean[]), scale[]), gamma[32*c + l]), beta[32*c + l])
void layernorm(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    (void)buffers, (void)p, (void)scratch, (void)error;
    if (begin >= end) return;
    const float *restrict in0 = buffers[0];
    const float *restrict in1 = buffers[1];
    const float *restrict in2 = buffers[2];
    float *restrict out0 = buffers[3];
    for (int64_t r = begin; r < end; ++r) {
        vf32 sum_v0 = opw_splat_f32(0.0f);
        vf32 sum_v1 = opw_splat_f32(0.0f);
        const float *in0_0 = in0 + r * 77;
        for (int64_t c = 0; c < 3; ++c) {
            const int64_t left0 = c * -32 + 77;
            if (left0 >= 32) {
                const vf32 t1 = opw_load_f32(in0_0 + c * 32);
                sum_v0 += t1;
                const vf32 t2 = opw_load_f32(in0_0 + c * 32 + 16);
                sum_v1 += t2;
            } else if (left0 == 13) {
                const vf32 t0 = opw_load_partial_f32(in0_0 + c * 32, 13);
                const vi32 m0 = opw_first_lanes(13);
                sum_v0 += opw_select_f32(m0, t0, opw_splat_f32(0.0f));
            }
        }
        sum_v0 = opw_splat_f32(opw_reduce_add_f32(sum_v0 + sum_v1));
        const vf32 t3 = opw_convert_i64_f32(opw_splat_i64(77));
        const vf32 t4 = opw_reciprocal_f32(0.0f + t3);
        const vf32 x0 = sum_v0 * t4;
        vf32 square_v0 = opw_splat_f32(0.0f);
        vf32 square_v1 = opw_splat_f32(0.0f);
        for (int64_t c0 = 0; c0 < 3; ++c0) {
            const int64_t left1 = c0 * -32 + 77;
            if (left1 >= 32) {
                const vf32 t7 = opw_load_f32(in0_0 + c0 * 32);
                const vf32 t8 = t7 - x0;
                square_v0 += t8 * t8;
                const vf32 t9 = opw_load_f32(in0_0 + c0 * 32 + 16);
                const vf32 t10 = t9 - x0;
                square_v1 += t10 * t10;
            } else if (left1 == 13) {
                const vf32 t5 = opw_load_partial_f32(in0_0 + c0 * 32, 13);
                const vf32 t6 = t5 - x0;
                const vi32 m1 = opw_first_lanes(13);
                square_v0 += opw_select_f32(m1, t6 * t6, opw_splat_f32(0.0f));
            }
        }
        square_v0 = opw_splat_f32(opw_reduce_add_f32(square_v0 + square_v1));
        const vf32 t11 = opw_rsqrt_f32(square_v0 * t4 + 1e-05f);
        const vf32 x1 = t11;
        float *out0_0 = out0 + r * 77;
        for (int64_t c1 = 0; c1 < 3; ++c1) {
            const int64_t left2 = c1 * -32 + 77;
            if (left2 >= 32) {
                const vf32 t15 = opw_load_f32(in0_0 + c1 * 32);
                const vf32 t16 = opw_load_f32(in1 + c1 * 32);
                const vf32 t17 = opw_load_f32(in2 + c1 * 32);
                opw_store_f32(out0_0 + c1 * 32, (t15 - x0) * x1 * t16 + t17);
                const vf32 t18 = opw_load_f32(in0_0 + c1 * 32 + 16);
                const vf32 t19 = opw_load_f32(in1 + c1 * 32 + 16);
                const vf32 t20 = opw_load_f32(in2 + c1 * 32 + 16);
                opw_store_f32(out0_0 + c1 * 32 + 16, (t18 - x0) * x1 * t19 + t20);
            } else if (left2 == 13) {
                const vf32 t12 = opw_load_partial_f32(in0_0 + c1 * 32, 13);
                const vf32 t13 = opw_load_partial_f32(in1 + c1 * 32, 13);
                const vf32 t14 = opw_load_partial_f32(in2 + c1 * 32, 13);
                opw_store_partial_f32(out0_0 + c1 * 32, (t12 - x0) * x1 * t13 + t14, 13);
            }
        }
    }
}
