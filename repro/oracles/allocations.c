/* Counts, for each thread by itself, the bytes that it has allocated and not yet freed, and their peak.

   Preloaded (LD_PRELOAD) in front of the C library's allocator. Only aligned blocks of THRESHOLD bytes or more count:
   that is how torch takes the memory of tensors, while its compiler's own books (one of them 32 MiB) and Python's
   objects come from plain malloc. A block freed by another thread is taken off that thread's count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
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

/* The counted blocks that are live: an open hash table. When it is full it counts nothing more and says so. */
#define SLOTS 65536
#define GONE ((void *)1)
static struct { void *block; long long size; } table[SLOTS];
static size_t used;
static int overflowed;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

int repro_allocations_overflowed(void) { return overflowed; }

static size_t slot_of(const void *block) { return ((uintptr_t)block >> 6) * 0x9E3779B97F4A7C15ull >> 48; }

static void *made(void *block) {
    size_t size = block ? malloc_usable_size(block) : 0;
    if (size < THRESHOLD) return block;
    pthread_mutex_lock(&table_lock);
    if (used < SLOTS / 2) {
        size_t slot = slot_of(block);
        while (table[slot].block && table[slot].block != GONE) slot = (slot + 1) % SLOTS;
        used += !table[slot].block;
        table[slot].block = block;
        table[slot].size = (long long)size;
        events++;
        live += (long long)size;
        if (live > peak) peak = live;
    } else {
        overflowed = 1;
    }
    pthread_mutex_unlock(&table_lock);
    return block;
}

static void freed(void *block) {
    /* every counted block is at least this aligned: most others are told apart without a look */
    if (!block || (uintptr_t)block % 64 || malloc_usable_size(block) < THRESHOLD) return;
    pthread_mutex_lock(&table_lock);
    for (size_t slot = slot_of(block); table[slot].block; slot = (slot + 1) % SLOTS) {
        if (table[slot].block == block) {
            live -= table[slot].size;
            table[slot].block = GONE;
            break;
        }
    }
    pthread_mutex_unlock(&table_lock);
}

void *malloc(size_t size) {
    if (resolving) return from_reserve(size);
    resolve();
    return next_malloc(size);
}

void *calloc(size_t count, size_t size) {
    if (resolving) return from_reserve(count * size);
    resolve();
    return next_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    resolve();
    if (in_reserve(block)) {
        size_t held = (size_t)(reserve + sizeof reserve - (char *)block);
        void *moved = malloc(size);
        if (moved) memcpy(moved, block, size < held ? size : held);
        return moved;
    }
    freed(block);
    return next_realloc(block, size);
}

void free(void *block) {
    if (in_reserve(block)) return;
    resolve();
    int error = errno;
    freed(block);
    next_free(block);
    errno = error;
}

int posix_memalign(void **block, size_t alignment, size_t size) {
    resolve();
    int failed = next_posix_memalign(block, alignment, size);
    if (!failed && alignment % 64 == 0) made(*block);
    return failed;
}

void *aligned_alloc(size_t alignment, size_t size) {
    resolve();
    void *block = next_aligned_alloc(alignment, size);
    return alignment % 64 ? block : made(block);
}

void *memalign(size_t alignment, size_t size) {
    resolve();
    void *block = next_memalign(alignment, size);
    return alignment % 64 ? block : made(block);
}
