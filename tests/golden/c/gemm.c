// gemm
// buffers: A f32 read, B f32 read, bias f32 read, C f32 write
// grid: nt < 2, mt < 8
//   lane tile n of 32 from 32*nt, below 40:
//     row tile m of 4 from 4*mt, below 29:
//       acc[m, n] = 0.0
//       for k below 64:
//         acc = sum(acc, mul(A[k + 64*m + 256*mt], B[32*k + n + 2048*nt]))
//       C[40*m + 160*mt + n + 32*nt] = max(0.0, add(acc[], bias[n + 32*nt]))
void gemm(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    (void)buffers, (void)p, (void)scratch, (void)error;
    if (begin >= end) return;
    const float *restrict in0 = buffers[0];
    const float *restrict in1 = buffers[1];
    const float *restrict in2 = buffers[2];
    float *restrict out0 = buffers[3];
    int64_t rest = begin;
    int64_t mt = rest % 8;
    rest /= 8;
    int64_t nt = rest;
    for (int64_t iteration = begin; iteration < end; ++iteration) {
        const int64_t left0 = nt * -32 + 40;
        const float *in0_0 = in0 + mt * 256;
        const float *in1_0 = in1 + nt * 2048;
        const float *in2_0 = in2 + nt * 32;
        float *out0_0 = out0 + (mt * 160 + nt * 32);
        if (left0 >= 32) {
            const int64_t left2 = mt * -4 + 29;
            if (left2 >= 4) {
                vf32 acc2_r0_v0 = opw_splat_f32(0.0f);
                vf32 acc2_r0_v1 = opw_splat_f32(0.0f);
                vf32 acc2_r1_v0 = opw_splat_f32(0.0f);
                vf32 acc2_r1_v1 = opw_splat_f32(0.0f);
                vf32 acc2_r2_v0 = opw_splat_f32(0.0f);
                vf32 acc2_r2_v1 = opw_splat_f32(0.0f);
                vf32 acc2_r3_v0 = opw_splat_f32(0.0f);
                vf32 acc2_r3_v1 = opw_splat_f32(0.0f);
                OPW_UNROLL(4)
                for (int64_t k2 = 0; k2 < 64; ++k2) {
                    const vf32 t21 = opw_splat_f32(in0_0[k2]);
                    const vf32 t22 = opw_load_f32(in1_0 + k2 * 32);
                    acc2_r0_v0 += t21 * t22;
                    const vf32 t23 = opw_load_f32(in1_0 + k2 * 32 + 16);
                    acc2_r0_v1 += t21 * t23;
                    const vf32 t24 = opw_splat_f32(in0_0[k2 + 64]);
                    acc2_r1_v0 += t24 * t22;
                    acc2_r1_v1 += t24 * t23;
                    const vf32 t25 = opw_splat_f32(in0_0[k2 + 128]);
                    acc2_r2_v0 += t25 * t22;
                    acc2_r2_v1 += t25 * t23;
                    const vf32 t26 = opw_splat_f32(in0_0[k2 + 192]);
                    acc2_r3_v0 += t26 * t22;
                    acc2_r3_v1 += t26 * t23;
                }
                const vf32 t27 = opw_load_f32(in2_0);
                const vf32 t28 = opw_max_f32(opw_splat_f32(0.0f), acc2_r0_v0 + t27);
                opw_store_f32(out0_0, t28);
                const vf32 t29 = opw_load_f32(in2_0 + 16);
                const vf32 t30 = opw_max_f32(opw_splat_f32(0.0f), acc2_r0_v1 + t29);
                opw_store_f32(out0_0 + 16, t30);
                const vf32 t31 = opw_max_f32(opw_splat_f32(0.0f), acc2_r1_v0 + t27);
                opw_store_f32(out0_0 + 40, t31);
                const vf32 t32 = opw_max_f32(opw_splat_f32(0.0f), acc2_r1_v1 + t29);
                opw_store_f32(out0_0 + 56, t32);
                const vf32 t33 = opw_max_f32(opw_splat_f32(0.0f), acc2_r2_v0 + t27);
                opw_store_f32(out0_0 + 80, t33);
                const vf32 t34 = opw_max_f32(opw_splat_f32(0.0f), acc2_r2_v1 + t29);
                opw_store_f32(out0_0 + 96, t34);
                const vf32 t35 = opw_max_f32(opw_splat_f32(0.0f), acc2_r3_v0 + t27);
                opw_store_f32(out0_0 + 120, t35);
                const vf32 t36 = opw_max_f32(opw_splat_f32(0.0f), acc2_r3_v1 + t29);
                opw_store_f32(out0_0 + 136, t36);
            } else if (left2 == 1) {
                vf32 acc1_r0_v0 = opw_splat_f32(0.0f);
                vf32 acc1_r0_v1 = opw_splat_f32(0.0f);
                OPW_UNROLL(4)
                for (int64_t k1 = 0; k1 < 64; ++k1) {
                    const vf32 t14 = opw_splat_f32(in0_0[k1]);
                    const vf32 t15 = opw_load_f32(in1_0 + k1 * 32);
                    acc1_r0_v0 += t14 * t15;
                    const vf32 t16 = opw_load_f32(in1_0 + k1 * 32 + 16);
                    acc1_r0_v1 += t14 * t16;
                }
                const vf32 t17 = opw_load_f32(in2_0);
                const vf32 t18 = opw_max_f32(opw_splat_f32(0.0f), acc1_r0_v0 + t17);
                opw_store_f32(out0_0, t18);
                const vf32 t19 = opw_load_f32(in2_0 + 16);
                const vf32 t20 = opw_max_f32(opw_splat_f32(0.0f), acc1_r0_v1 + t19);
                opw_store_f32(out0_0 + 16, t20);
            }
        } else if (left0 == 8) {
            const int64_t left1 = mt * -4 + 29;
            if (left1 >= 4) {
                vf32 acc0_r0_v0 = opw_splat_f32(0.0f);
                vf32 acc0_r1_v0 = opw_splat_f32(0.0f);
                vf32 acc0_r2_v0 = opw_splat_f32(0.0f);
                vf32 acc0_r3_v0 = opw_splat_f32(0.0f);
                OPW_UNROLL(4)
                for (int64_t k0 = 0; k0 < 64; ++k0) {
                    const vf32 t4 = opw_splat_f32(in0_0[k0]);
                    const vf32 t5 = opw_load_partial_f32(in1_0 + k0 * 32, 8);
                    acc0_r0_v0 = opw_multiply_add_half_f32(acc0_r0_v0, t4, t5);
                    const vf32 t6 = opw_splat_f32(in0_0[k0 + 64]);
                    acc0_r1_v0 = opw_multiply_add_half_f32(acc0_r1_v0, t6, t5);
                    const vf32 t7 = opw_splat_f32(in0_0[k0 + 128]);
                    acc0_r2_v0 = opw_multiply_add_half_f32(acc0_r2_v0, t7, t5);
                    const vf32 t8 = opw_splat_f32(in0_0[k0 + 192]);
                    acc0_r3_v0 = opw_multiply_add_half_f32(acc0_r3_v0, t8, t5);
                }
                const vf32 t9 = opw_load_partial_f32(in2_0, 8);
                const vf32 t10 = opw_max_f32(opw_splat_f32(0.0f), acc0_r0_v0 + t9);
                opw_store_partial_f32(out0_0, t10, 8);
                const vf32 t11 = opw_max_f32(opw_splat_f32(0.0f), acc0_r1_v0 + t9);
                opw_store_partial_f32(out0_0 + 40, t11, 8);
                const vf32 t12 = opw_max_f32(opw_splat_f32(0.0f), acc0_r2_v0 + t9);
                opw_store_partial_f32(out0_0 + 80, t12, 8);
                const vf32 t13 = opw_max_f32(opw_splat_f32(0.0f), acc0_r3_v0 + t9);
                opw_store_partial_f32(out0_0 + 120, t13, 8);
            } else if (left1 == 1) {
                vf32 acc_r0_v0 = opw_splat_f32(0.0f);
                OPW_UNROLL(4)
                for (int64_t k = 0; k < 64; ++k) {
                    const vf32 t0 = opw_splat_f32(in0_0[k]);
                    const vf32 t1 = opw_load_partial_f32(in1_0 + k * 32, 8);
                    acc_r0_v0 = opw_multiply_add_half_f32(acc_r0_v0, t0, t1);
                }
                const vf32 t2 = opw_load_partial_f32(in2_0, 8);
                const vf32 t3 = opw_max_f32(opw_splat_f32(0.0f), acc_r0_v0 + t2);
                opw_store_partial_f32(out0_0, t3, 8);
            }
        }
        if (++mt == 8) { mt = 0; ++nt; }
    }
}
