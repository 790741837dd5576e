// gemm
// buffers: A f32 read, B f32 read, bias f32 read, C f32 write
// sizes: m
// grid: nt < 1, mt < ((m + 3) // 4)
//   lane tile n of 32 from 32*nt, below 32:
//     row tile m of 4 from 4*mt, below m:
//       acc[m, n] = 0.0
//       for k below 8:
//         acc = sum(acc, mul(A[k + 8*m + 32*mt], B[32*k + n + 256*nt]))
//       C[32*m + 128*mt + n + 32*nt] = max(0.0, add(acc[], bias[n + 32*nt]))
void gemm(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    (void)buffers, (void)p, (void)scratch, (void)error;
    if (begin >= end) return;
    const int64_t n0 = p[0];
    const float *restrict in0 = buffers[0];
    const float *restrict in1 = buffers[1];
    const float *restrict in2 = buffers[2];
    float *restrict out0 = buffers[3];
    const int64_t size0 = n0 + 3;
    const int64_t i0 = size0 / 4;
    int64_t rest = begin;
    int64_t mt = rest % i0;
    rest /= i0;
    int64_t nt = rest;
    for (int64_t iteration = begin; iteration < end; ++iteration) {
        const int64_t left0 = mt * -4 + n0;
        const float *in0_0 = in0 + mt * 32;
        const float *in1_0 = in1 + nt * 256;
        const float *in2_0 = in2 + nt * 32;
        float *out0_0 = out0 + (mt * 128 + nt * 32);
        if (left0 >= 4) {
            vf32 acc_r0_v0 = opw_splat_f32(0.0f);
            vf32 acc_r0_v1 = opw_splat_f32(0.0f);
            vf32 acc_r1_v0 = opw_splat_f32(0.0f);
            vf32 acc_r1_v1 = opw_splat_f32(0.0f);
            vf32 acc_r2_v0 = opw_splat_f32(0.0f);
            vf32 acc_r2_v1 = opw_splat_f32(0.0f);
            vf32 acc_r3_v0 = opw_splat_f32(0.0f);
            vf32 acc_r3_v1 = opw_splat_f32(0.0f);
            OPW_UNROLL(4)
            for (int64_t k = 0; k < 8; ++k) {
                const vf32 t0 = opw_splat_f32(in0_0[k]);
                const vf32 t1 = opw_load_f32(in1_0 + k * 32);
                acc_r0_v0 += t0 * t1;
                const vf32 t2 = opw_load_f32(in1_0 + k * 32 + 16);
                acc_r0_v1 += t0 * t2;
                const vf32 t3 = opw_splat_f32(in0_0[k + 8]);
                acc_r1_v0 += t3 * t1;
                acc_r1_v1 += t3 * t2;
                const vf32 t4 = opw_splat_f32(in0_0[k + 16]);
                acc_r2_v0 += t4 * t1;
                acc_r2_v1 += t4 * t2;
                const vf32 t5 = opw_splat_f32(in0_0[k + 24]);
                acc_r3_v0 += t5 * t1;
                acc_r3_v1 += t5 * t2;
            }
            const vf32 t6 = opw_load_f32(in2_0);
            const vf32 t7 = opw_max_f32(opw_splat_f32(0.0f), acc_r0_v0 + t6);
            opw_store_f32(out0_0, t7);
            const vf32 t8 = opw_load_f32(in2_0 + 16);
            const vf32 t9 = opw_max_f32(opw_splat_f32(0.0f), acc_r0_v1 + t8);
            opw_store_f32(out0_0 + 16, t9);
            const vf32 t10 = opw_max_f32(opw_splat_f32(0.0f), acc_r1_v0 + t6);
            opw_store_f32(out0_0 + 32, t10);
            const vf32 t11 = opw_max_f32(opw_splat_f32(0.0f), acc_r1_v1 + t8);
            opw_store_f32(out0_0 + 48, t11);
            const vf32 t12 = opw_max_f32(opw_splat_f32(0.0f), acc_r2_v0 + t6);
            opw_store_f32(out0_0 + 64, t12);
            const vf32 t13 = opw_max_f32(opw_splat_f32(0.0f), acc_r2_v1 + t8);
            opw_store_f32(out0_0 + 80, t13);
            const vf32 t14 = opw_max_f32(opw_splat_f32(0.0f), acc_r3_v0 + t6);
            opw_store_f32(out0_0 + 96, t14);
            const vf32 t15 = opw_max_f32(opw_splat_f32(0.0f), acc_r3_v1 + t8);
            opw_store_f32(out0_0 + 112, t15);
        } else {
            int64_t start0 = 0;
            if (left0 - start0 >= 2) {
                vf32 acc0_r0_v0 = opw_splat_f32(0.0f);
                vf32 acc0_r0_v1 = opw_splat_f32(0.0f);
                vf32 acc0_r1_v0 = opw_splat_f32(0.0f);
                vf32 acc0_r1_v1 = opw_splat_f32(0.0f);
                const float *in0_1 = in0 + (mt * 32 + start0 * 8);
                OPW_UNROLL(4)
                for (int64_t k0 = 0; k0 < 8; ++k0) {
                    const vf32 t16 = opw_splat_f32(in0_1[k0]);
                    const vf32 t17 = opw_load_f32(in1_0 + k0 * 32);
                    acc0_r0_v0 += t16 * t17;
                    const vf32 t18 = opw_load_f32(in1_0 + k0 * 32 + 16);
                    acc0_r0_v1 += t16 * t18;
                    const vf32 t19 = opw_splat_f32(in0_1[k0 + 8]);
                    acc0_r1_v0 += t19 * t17;
                    acc0_r1_v1 += t19 * t18;
                }
                const vf32 t20 = opw_load_f32(in2_0);
                const vf32 t21 = opw_max_f32(opw_splat_f32(0.0f), acc0_r0_v0 + t20);
                opw_store_f32(out0_0 + start0 * 32, t21);
                const vf32 t22 = opw_load_f32(in2_0 + 16);
                const vf32 t23 = opw_max_f32(opw_splat_f32(0.0f), acc0_r0_v1 + t22);
                opw_store_f32(out0_0 + start0 * 32 + 16, t23);
                const vf32 t24 = opw_max_f32(opw_splat_f32(0.0f), acc0_r1_v0 + t20);
                opw_store_f32(out0_0 + start0 * 32 + 32, t24);
                const vf32 t25 = opw_max_f32(opw_splat_f32(0.0f), acc0_r1_v1 + t22);
                opw_store_f32(out0_0 + start0 * 32 + 48, t25);
                start0 += 2;
            }
            if (left0 - start0 >= 1) {
                vf32 acc1_r0_v0 = opw_splat_f32(0.0f);
                vf32 acc1_r0_v1 = opw_splat_f32(0.0f);
                const float *in0_2 = in0 + (mt * 32 + start0 * 8);
                OPW_UNROLL(4)
                for (int64_t k1 = 0; k1 < 8; ++k1) {
                    const vf32 t26 = opw_splat_f32(in0_2[k1]);
                    const vf32 t27 = opw_load_f32(in1_0 + k1 * 32);
                    acc1_r0_v0 += t26 * t27;
                    const vf32 t28 = opw_load_f32(in1_0 + k1 * 32 + 16);
                    acc1_r0_v1 += t26 * t28;
                }
                const vf32 t29 = opw_load_f32(in2_0);
                const vf32 t30 = opw_max_f32(opw_splat_f32(0.0f), acc1_r0_v0 + t29);
                opw_store_f32(out0_0 + start0 * 32, t30);
                const vf32 t31 = opw_load_f32(in2_0 + 16);
                const vf32 t32 = opw_max_f32(opw_splat_f32(0.0f), acc1_r0_v1 + t31);
                opw_store_f32(out0_0 + start0 * 32 + 16, t32);
                start0 += 1;
            }
        }
        if (++mt == i0) { mt = 0; ++nt; }
    }
}
