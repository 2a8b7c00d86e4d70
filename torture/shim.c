/* Makes system calls fail, or the process die, at the n-th change of a file below a folder; shifts the clock.

   Preloaded into the process that forks the attempts (LD_PRELOAD), and armed in each of them by torture_arm. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char folder[4096];
static long left = -1, counted = 0; /* changes until the fault; negative: only count */
static int is_armed = 0, fault = 0, lasts = 0, is_down = 0;
static long shift = 0, shift_after = 0, clock_reads = 0;

/* From now on the n-th change (from 1) below `below` fails with error `error`, or, if that is negative, sends signal
   -error. With `goes_on` all later ones fail, too. */
void torture_arm(const char *below, long n, int error, int goes_on) {
    strncpy(folder, below, sizeof folder - 1);
    left = n, fault = error, lasts = goes_on, is_armed = 1, is_down = 0, counted = 0;
}
long torture_count(void) { return counted; }
/* After `reads` readings the wall clock is wrong by `seconds`. */
void torture_clock(long seconds, long reads) { shift = seconds, shift_after = reads, clock_reads = 0; }

static int fails(const char *path) {
    if (strncmp(path, folder, strlen(folder)) != 0) return 0;
    counted++;
    if (is_down && lasts) { errno = fault; return 1; }
    if (left < 0 || counted != left) return 0;
    if (fault < 0) { kill(getpid(), -fault); return 0; }
    is_down = 1;
    errno = fault;
    return 1;
}
static int fd_fails(int fd) {
    if (!is_armed) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return fails(path);
}
static int at_fails(int at, const char *path) {
    if (!is_armed || !path) return 0;
    char full[4096] = "";
    if (path[0] != '/') {
        char link[64];
        snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
        ssize_t n = readlink(link, full, sizeof full - 2);
        if (n < 0) return 0;
        full[n] = '/', full[n + 1] = 0;
    }
    strncat(full, path, sizeof full - strlen(full) - 1);
    return fails(full);
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *bytes, size_t n) {
    REAL(ssize_t, write, int, const void *, size_t);
    if (fd_fails(fd)) {
        /* a disk that fills takes a part first; the rest fails */
        if (fault == ENOSPC && lasts && n > 1 && counted == left) { left = counted + 1; is_down = 0; return real(fd, bytes, n / 2); }
        return -1;
    }
    return real(fd, bytes, n);
}
ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    return fd_fails(fd) ? -1 : real(fd, bytes, n, at);
}
ssize_t writev(int fd, const struct iovec *parts, int n) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    return fd_fails(fd) ? -1 : real(fd, parts, n);
}
ssize_t sendfile64(int out, int in, off64_t *at, size_t n) {
    REAL(ssize_t, sendfile64, int, int, off64_t *, size_t);
    return fd_fails(out) ? -1 : real(out, in, at, n);
}
ssize_t copy_file_range(int in, off64_t *at, int out, off64_t *to, size_t n, unsigned flags) {
    REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
    return fd_fails(out) ? -1 : real(in, at, out, to, n, flags);
}
int fsync(int fd) { REAL(int, fsync, int); return fd_fails(fd) ? -1 : real(fd); }
int fdatasync(int fd) { REAL(int, fdatasync, int); return fd_fails(fd) ? -1 : real(fd); }
int ftruncate64(int fd, off64_t n) { REAL(int, ftruncate64, int, off64_t); return fd_fails(fd) ? -1 : real(fd, n); }
int posix_fallocate64(int fd, off64_t at, off64_t n) {
    REAL(int, posix_fallocate64, int, off64_t, off64_t);
    return fd_fails(fd) ? errno : real(fd, at, n);
}

#define CHANGES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define MODE(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, last); mode = va_arg(more, mode_t); va_end(more); }
int open(const char *path, int flags, ...) {
    MODE(flags, flags)
    REAL(int, open, const char *, int, ...);
    return CHANGES(flags) && at_fails(AT_FDCWD, path) ? -1 : real(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags, flags)
    REAL(int, open64, const char *, int, ...);
    return CHANGES(flags) && at_fails(AT_FDCWD, path) ? -1 : real(path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    MODE(flags, flags)
    REAL(int, openat, int, const char *, int, ...);
    return CHANGES(flags) && at_fails(at, path) ? -1 : real(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE(flags, flags)
    REAL(int, openat64, int, const char *, int, ...);
    return CHANGES(flags) && at_fails(at, path) ? -1 : real(at, path, flags, mode);
}
int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    return at_fails(AT_FDCWD, from) ? -1 : real(from, to);
}
int renameat(int at, const char *from, int to_at, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    return at_fails(at, from) ? -1 : real(at, from, to_at, to);
}
int renameat2(int at, const char *from, int to_at, const char *to, unsigned flags) {
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    return at_fails(at, from) ? -1 : real(at, from, to_at, to, flags);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    return at_fails(AT_FDCWD, path) ? -1 : real(path, mode);
}
int symlink(const char *target, const char *path) {
    REAL(int, symlink, const char *, const char *);
    return at_fails(AT_FDCWD, path) ? -1 : real(target, path);
}
/* Removing needs no room, so it only counts as a moment to die in. */
static void passes(int at, const char *path) { if (fault < 0) at_fails(at, path); }
int unlink(const char *path) { REAL(int, unlink, const char *); passes(AT_FDCWD, path); return real(path); }
int unlinkat(int at, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    passes(at, path);
    return real(at, path, flags);
}
int rmdir(const char *path) { REAL(int, rmdir, const char *); passes(AT_FDCWD, path); return real(path); }

static long wrong_by(void) { return shift && ++clock_reads > shift_after ? shift : 0; }
int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    int status = real(clock, now);
    if (status == 0 && clock == CLOCK_REALTIME) now->tv_sec += wrong_by();
    return status;
}
int gettimeofday(struct timeval *now, void *zone) {
    REAL(int, gettimeofday, struct timeval *, void *);
    int status = real(now, zone);
    if (status == 0) now->tv_sec += wrong_by();
    return status;
}
time_t time(time_t *where) {
    REAL(time_t, time, time_t *);
    time_t now = real(NULL) + wrong_by();
    if (where) *where = now;
    return now;
}
