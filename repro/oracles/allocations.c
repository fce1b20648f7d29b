/* Counts, for each thread by itself, the bytes that it has allocated and not yet freed, and their peak.

   Preloaded (LD_PRELOAD) in front of the C library's allocator. Only blocks of THRESHOLD bytes or more count, by
   their usable size, so that what is added when a block is made is what is taken off when it is freed. A block freed
   by another thread is taken off that thread's count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <string.h>

#define THRESHOLD (64 * 1024)

/* initial-exec: reaching it must never allocate */
#define PER_THREAD static __thread __attribute__((tls_model("initial-exec")))
PER_THREAD long long live, peak, events;

long long repro_allocations_peak(void) { return peak; }
long long repro_allocations_events(void) { return events; }
void repro_allocations_start(void) { live = peak = events = 0; }

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static int (*next_posix_memalign)(void **, size_t, size_t);
static void *(*next_aligned_alloc)(size_t, size_t);
static void *(*next_memalign)(size_t, size_t);

/* dlsym itself may allocate; what it gets comes from here and is never given back */
static _Alignas(64) char reserve[16 * 1024];
static size_t reserve_used;
static __thread __attribute__((tls_model("initial-exec"))) int resolving;

static void *from_reserve(size_t size) {
    size = (size + 63) / 64 * 64;
    if (size > sizeof reserve - reserve_used) return NULL;
    void *block = reserve + reserve_used;
    reserve_used += size;
    return block;
}

static int in_reserve(const void *block) {
    return (const char *)block >= reserve && (const char *)block < reserve + sizeof reserve;
}

__attribute__((constructor)) static void resolve(void) {
    if (next_free) return;
    resolving = 1;
    *(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&next_calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&next_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&next_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    *(void **)&next_aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    *(void **)&next_memalign = dlsym(RTLD_NEXT, "memalign");
    *(void **)&next_free = dlsym(RTLD_NEXT, "free");
    resolving = 0;
}

static long long counted(void *block) {
    size_t size = block ? malloc_usable_size(block) : 0;
    return size >= THRESHOLD ? (long long)size : 0;
}

static void *made(void *block) {
    long long size = counted(block);
    if (size) {
        events++;
        live += size;
        if (live > peak) peak = live;
    }
    return block;
}

void *malloc(size_t size) {
    if (resolving) return from_reserve(size);
    resolve();
    return made(next_malloc(size));
}

void *calloc(size_t count, size_t size) {
    if (resolving) return from_reserve(count * size);
    resolve();
    return made(next_calloc(count, size));
}

void *realloc(void *block, size_t size) {
    resolve();
    if (in_reserve(block)) {
        size_t held = (size_t)(reserve + sizeof reserve - (char *)block);
        void *moved = malloc(size);
        if (moved) memcpy(moved, block, size < held ? size : held);
        return moved;
    }
    long long before = counted(block);
    void *moved = next_realloc(block, size);
    if (!moved && size) return NULL; /* the old block is still there */
    live -= before;
    return made(moved);
}

void free(void *block) {
    if (in_reserve(block)) return;
    resolve();
    int error = errno;
    live -= counted(block);
    next_free(block);
    errno = error;
}

int posix_memalign(void **block, size_t alignment, size_t size) {
    resolve();
    int failed = next_posix_memalign(block, alignment, size);
    if (!failed) made(*block);
    return failed;
}

void *aligned_alloc(size_t alignment, size_t size) {
    resolve();
    return made(next_aligned_alloc(alignment, size));
}

void *memalign(size_t alignment, size_t size) {
    resolve();
    return made(next_memalign(alignment, size));
}
