/* A monotonic clock: that of Python's `time.monotonic` on Linux, without a Python call. */
#ifndef KCONSUMER_MONOTONIC_H
#define KCONSUMER_MONOTONIC_H

#ifdef _WIN32
#include <windows.h>

static inline double kc_monotonic_ms(void)
{
    LARGE_INTEGER count, frequency;
    QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&count);
    return 1e3 * (double) count.QuadPart / (double) frequency.QuadPart;
}
#else
#include <time.h>

static inline double kc_monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double) now.tv_sec + 1e-6 * (double) now.tv_nsec;
}
#endif

#endif
