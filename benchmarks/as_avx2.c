/* A processor without AVX-512, for programs whose `cpuid` instructions were replaced by a trap, 0f 04 (benchmarks/as_avx2.py).
 *
 * Preloaded, it catches the trap, executes `cpuid`, and clears the bits of what comes after AVX2: AVX-512 in all its
 * parts, AVX10, AMX, and the forms of VNNI, IFMA and bfloat16 that have vectors of 256 bits. Code of other libraries, and
 * what they choose once, runs at full speed: nothing is emulated but this instruction. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>

#define BIT(n) (1u << (n))

static void mask(uint32_t leaf, uint32_t subleaf, uint32_t r[4]) { /* eax, ebx, ecx, edx */
    if (leaf == 7 && subleaf == 0) {
        /* AVX512F, DQ, IFMA, PF, ER, CD, BW, VL */
        r[1] &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
        /* VBMI, VBMI2, AVX512_VNNI, BITALG, VPOPCNTDQ; GFNI, VAES and VPCLMULQDQ have forms without AVX-512 */
        r[2] &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
        /* 4VNNIW, 4FMAPS, VP2INTERSECT, AMX-BF16, AVX512_FP16, AMX-TILE, AMX-INT8 */
        r[3] &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
    } else if (leaf == 7 && subleaf == 1) {
        r[0] &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23)); /* AVX-VNNI, AVX512_BF16, AMX-FP16, AVX-IFMA */
        r[3] &= ~(BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19)); /* VNNI-INT8, NE-CONVERT, AMX, VNNI-INT16, AVX10 */
    } else if (leaf == 0xd && subleaf == 0) {
        r[0] &= ~(BIT(5) | BIT(6) | BIT(7) | BIT(17) | BIT(18)); /* state of AVX-512 and AMX */
    } else if (leaf == 0x24) {
        r[0] = r[1] = r[2] = r[3] = 0; /* AVX10 */
    }
}

static void trapped(int number, siginfo_t *info, void *context) {
    greg_t *at = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)at[REG_RIP];
    (void)info;
    if (code[0] != 0x0f || code[1] != 0x04) { /* another illegal instruction: as if nobody had caught it */
        signal(number, SIG_DFL);
        return;
    }
    uint32_t leaf = (uint32_t)at[REG_RAX], subleaf = (uint32_t)at[REG_RCX], r[4];
    __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
    mask(leaf, subleaf, r);
    at[REG_RAX] = r[0], at[REG_RBX] = r[1], at[REG_RCX] = r[2], at[REG_RDX] = r[3];
    at[REG_RIP] += 2;
}

__attribute__((constructor(101))) static void begin(void) {
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGILL, &action, 0);
}
