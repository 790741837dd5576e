/* Checks that processor and operating system support the features a module was compiled for. */
#define _GNU_SOURCE
#include "runtime.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { EAX, EBX, ECX, EDX };
enum { ANY, AVX = 0x6, AVX512 = 0xe6, AMX = 0x60000 }; /* register state the operating system must save: bits of XCR0 */

typedef struct {
    const char *name;
    uint32_t leaf, subleaf;
    int word, bit;
    uint32_t state;
} feature;

static const feature FEATURES[] = {
    {"sse3", 1, 0, ECX, 0, ANY},            {"ssse3", 1, 0, ECX, 9, ANY},
    {"sse4.1", 1, 0, ECX, 19, ANY},         {"sse4.2", 1, 0, ECX, 20, ANY},
    {"popcnt", 1, 0, ECX, 23, ANY},         {"movbe", 1, 0, ECX, 22, ANY},
    {"cx16", 1, 0, ECX, 13, ANY},           {"avx", 1, 0, ECX, 28, AVX},
    {"fma", 1, 0, ECX, 12, AVX},            {"f16c", 1, 0, ECX, 29, AVX},
    {"lzcnt", 0x80000001, 0, ECX, 5, ANY},  {"bmi", 7, 0, EBX, 3, ANY},
    {"bmi2", 7, 0, EBX, 8, ANY},            {"avx2", 7, 0, EBX, 5, AVX},
    {"avx512f", 7, 0, EBX, 16, AVX512},     {"avx512dq", 7, 0, EBX, 17, AVX512},
    {"avx512cd", 7, 0, EBX, 28, AVX512},    {"avx512bw", 7, 0, EBX, 30, AVX512},
    {"avx512vl", 7, 0, EBX, 31, AVX512},    {"avx512ifma", 7, 0, EBX, 21, AVX512},
    {"avx512vbmi", 7, 0, ECX, 1, AVX512},   {"avx512vbmi2", 7, 0, ECX, 6, AVX512},
    {"gfni", 7, 0, ECX, 8, ANY},            {"vaes", 7, 0, ECX, 9, AVX},
    {"vpclmulqdq", 7, 0, ECX, 10, AVX},     {"avx512vnni", 7, 0, ECX, 11, AVX512},
    {"avx512bitalg", 7, 0, ECX, 12, AVX512}, {"avx512vpopcntdq", 7, 0, ECX, 14, AVX512},
    {"avx512fp16", 7, 0, EDX, 23, AVX512},  {"amx-bf16", 7, 0, EDX, 22, AMX},
    {"amx-tile", 7, 0, EDX, 24, AMX},       {"amx-int8", 7, 0, EDX, 25, AMX},
    {"avxvnni", 7, 1, EAX, 4, AVX},         {"avx512bf16", 7, 1, EAX, 5, AVX512},
};

static const struct {
    const char *name, *features;
} LEVELS[] = {
    {"x86-64", ""},
    {"x86-64-v2", "sse3 ssse3 sse4.1 sse4.2 popcnt cx16"},
    {"x86-64-v3", "x86-64-v2 avx avx2 fma f16c bmi bmi2 lzcnt movbe"},
    {"x86-64-v4", "x86-64-v3 avx512f avx512dq avx512cd avx512bw avx512vl"},
    {"vnni", "avx512vnni"},
    {"bf16", "avx512bf16"},
};

__attribute__((target("xsave"))) static uint64_t saved_state(void) { return __builtin_ia32_xgetbv(0); }

/* The registers of AMX are large, and Linux saves them for processes that asked for them. */
static bool may_use_tiles(void) {
#if defined(__linux__)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
#else
    return true;
#endif
}

static bool has(const char *name) {
    for (size_t i = 0; i < sizeof LEVELS / sizeof *LEVELS; i++)
        if (!strcmp(name, LEVELS[i].name)) return opw_cpu_supports(LEVELS[i].features, NULL, 0);
    for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++) {
        const feature *f = &FEATURES[i];
        if (strcmp(name, f->name)) continue;
        uint32_t words[4];
        if (!__get_cpuid_count(f->leaf, f->subleaf, &words[EAX], &words[EBX], &words[ECX], &words[EDX])) return false;
        if (!(words[f->word] >> f->bit & 1)) return false;
        if (!f->state) return true;
        if (!__get_cpuid(1, &words[EAX], &words[EBX], &words[ECX], &words[EDX])) return false;
        bool xsave = words[ECX] >> 27 & 1;
        return xsave && (saved_state() & f->state) == f->state && (f->state != AMX || may_use_tiles());
    }
    return false; /* an unknown feature counts as missing */
}

#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

static bool has(const char *name) {
    unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    if (!strcmp(name, "aarch64")) return true;
    if (!strcmp(name, "neon")) return one & HWCAP_ASIMD;
    if (!strcmp(name, "fp16")) return one & HWCAP_ASIMDHP;
    if (!strcmp(name, "dotprod")) return one & HWCAP_ASIMDDP;
    if (!strcmp(name, "sve")) return one & HWCAP_SVE;
    if (!strcmp(name, "i8mm")) return two & (1UL << 13);
    if (!strcmp(name, "bf16")) return two & (1UL << 14);
    return false;
}

#else
static bool has(const char *name) {
    (void)name;
    return false;
}
#endif

bool opw_cpu_supports(const char *isa, char *missing, size_t capacity) {
    static const char SEPARATORS[] = " ,+";
    for (const char *at = isa; *at;) {
        at += strspn(at, SEPARATORS);
        size_t length = strcspn(at, SEPARATORS);
        if (!length) break;
        char name[32];
        bool known = length < sizeof name;
        if (known) {
            memcpy(name, at, length);
            name[length] = 0;
        }
        if (!known || !has(name)) {
            opw_message(missing, capacity, "%.*s", (int)length, at);
            return false;
        }
        at += length;
    }
    return true;
}
