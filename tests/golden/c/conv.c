// conv
// buffers: X f32 read, W f32 read, Y f32 write
// grid: nt < 1, y < 9, xt < 3
//   lane tile n of 32 from 32*nt, below 32:
//     row tile x of 3 from 3*xt, below 9:
//       acc[x, n] = 0.0
//       for ky below 3:
//         for kx below 3:
//           for c below 8:
//             acc = sum(acc, mul((X[c + 8*kx + 72*ky + 8*x + 24*xt + 72*y - 80] if ky + y - 1 >= 0, -ky - y + 9 >= 0, kx + x + 3*xt - 1 >= 0, -kx - x...
//       Y[n + 32*nt + 32*x + 96*xt + 288*y] = acc[]
void conv(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    (void)buffers, (void)p, (void)scratch, (void)error;
    if (begin >= end) return;
    const float *restrict in0 = buffers[0];
    const float *restrict in1 = buffers[1];
    float *restrict out0 = buffers[2];
    int64_t rest = begin;
    int64_t xt = rest % 3;
    rest /= 3;
    int64_t y = rest % 9;
    rest /= 9;
    int64_t nt = rest;
    for (int64_t iteration = begin; iteration < end; ++iteration) {
        vf32 acc_r0_v0 = opw_splat_f32(0.0f);
        vf32 acc_r0_v1 = opw_splat_f32(0.0f);
        vf32 acc_r1_v0 = opw_splat_f32(0.0f);
        vf32 acc_r1_v1 = opw_splat_f32(0.0f);
        vf32 acc_r2_v0 = opw_splat_f32(0.0f);
        vf32 acc_r2_v1 = opw_splat_f32(0.0f);
        for (int64_t ky = 0; ky < 3; ++ky) {
            const int inside1 = ky + y >= 1 && ky + y <= 9;
            for (int64_t kx = 0; kx < 3; ++kx) {
                const int inside0 = ky + y >= 1 && ky + y <= 9 && kx + xt * 3 >= 1;
                const float *in0_0 = inside0 ? in0 + (kx * 8 + ky * 72 + xt * 24 + y * 72 - 80) : opw_zeros.floats;
                const float *in1_0 = in1 + (kx * 256 + ky * 768 + nt * 2304);
                const float *in0_1 = inside1 ? in0 + (kx * 8 + ky * 72 + xt * 24 + y * 72 - 72) : opw_zeros.floats;
                const int inside2 = ky + y >= 1 && ky + y <= 9 && kx + xt * 3 <= 7;
                const float *in0_2 = inside2 ? in0 + (kx * 8 + ky * 72 + xt * 24 + y * 72 - 64) : opw_zeros.floats;
                OPW_UNROLL(4)
                for (int64_t c = 0; c < 8; ++c) {
                    const vf32 t0 = opw_splat_f32(in0_0[c]);
                    const vf32 t1 = opw_load_f32(in1_0 + c * 32);
                    acc_r0_v0 += t0 * t1;
                    const vf32 t2 = opw_load_f32(in1_0 + c * 32 + 16);
                    acc_r0_v1 += t0 * t2;
                    const vf32 t3 = opw_splat_f32(in0_1[c]);
                    acc_r1_v0 += t3 * t1;
                    acc_r1_v1 += t3 * t2;
                    const vf32 t4 = opw_splat_f32(in0_2[c]);
                    acc_r2_v0 += t4 * t1;
                    acc_r2_v1 += t4 * t2;
                }
            }
        }
        float *out0_0 = out0 + (nt * 32 + xt * 96 + y * 288);
        opw_store_f32(out0_0, acc_r0_v0);
        opw_store_f32(out0_0 + 16, acc_r0_v1);
        opw_store_f32(out0_0 + 32, acc_r1_v0);
        opw_store_f32(out0_0 + 48, acc_r1_v1);
        opw_store_f32(out0_0 + 64, acc_r2_v0);
        opw_store_f32(out0_0 + 80, acc_r2_v1);
        if (++xt == 3) { xt = 0; if (++y == 9) { y = 0; ++nt; } }
    }
}
