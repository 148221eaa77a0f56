/* Preloaded, it has every flush to the disk take at least BENCH_FSYNC_US microseconds: see bench/server.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int at_least(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    const char *asked = getenv("BENCH_FSYNC_US");
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += asked ? atol(asked) * 1000 : 0;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    int result = real(fd);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
    return result;
}

int fsync(int fd) { return at_least("fsync", fd); }
int fdatasync(int fd) { return at_least("fdatasync", fd); }
