/*
 * A wall clock that lies, for one process. Made into a library and preloaded by scripts/chaos (fault `clock`).
 *
 * What it adds to the true time stands in a file of three numbers, which the harness changes while the process runs:
 * nanoseconds to add; parts per million by which the clock runs too fast; and since when it does, in true nanoseconds.
 * The monotonic clock stays true, as it does on a real machine.
 *
 * The memory allocator asks for the time before anything is initialised. So nothing here allocates, and the true clock is
 * read by system call, not by looking up the function that is replaced.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct lie {
    int64_t offset_ns;
    int64_t fast_ppm;
    int64_t since_ns;
};

static const struct lie TRUTH;
static const volatile struct lie *lie;

/* Two threads may both map the file: the second mapping is the same. */
static const volatile struct lie *current(void) {
    const volatile struct lie *known = __atomic_load_n(&lie, __ATOMIC_ACQUIRE);
    if (known != NULL)
        return known;
    known = &TRUTH;
    const char *path = getenv("HEADWATER_CHAOS_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof(struct lie), PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (mapped != MAP_FAILED)
            known = mapped;
    }
    __atomic_store_n(&lie, known, __ATOMIC_RELEASE);
    return known;
}

int clock_gettime(clockid_t id, struct timespec *out) {
    long failed = syscall(SYS_clock_gettime, id, out);
    if (failed != 0 || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
        return (int)failed;
    const volatile struct lie *now = current();
    int64_t truth = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec;
    /* Milliseconds times parts per million: nanoseconds, without an overflow. */
    int64_t drift = now->fast_ppm == 0 ? 0 : (truth - now->since_ns) / 1000000 * now->fast_ppm;
    int64_t told = truth + now->offset_ns + drift;
    out->tv_sec = told / 1000000000;
    out->tv_nsec = told % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}
