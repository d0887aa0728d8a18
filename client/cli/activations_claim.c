/* Units of work on a disk: a claim appears whole by link(), which fails where there is one; taking over one whose lease has passed
 * happens under a lock of the folder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "activation_claim.h"
#include "activations_commands.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/followed_link.h"

#define FOLDER ACTIVATION_CLAIMS
enum { NAME_CHARS = ACTIVATION_CLAIM_NAME_CHARS, LOCK_PAUSE_MS = 20, LONGEST_LOCK_MS = 60000 };
#define MAX_UNITS 100000000ull

/* Work is claimed before anything is appended, so the store's folder is made, too; what is done was claimed, so nothing is. */
static int open_claims(const char *store, const struct activations_args *args, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    bool is_done = args->claim.done != ACTIVATIONS_UNSET;
    if (!is_done)
        mkdir(store, 0777); /* where it cannot be made, the next one tells why */
    int store_fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
    text_escape(store, strlen(store), text);
    if (store_fd < 0)
        return fail_errno(error, errno, "cannot open the store %s", text);
    if (is_done && faccessat(store_fd, FOLDER, F_OK, 0) < 0 && errno == ENOENT)
        activation_claim_fail_nobody(args->claim.done, error);
    else if (!is_done && mkdirat(store_fd, FOLDER, 0777) < 0 && errno != EEXIST)
        fail_errno(error, errno, "cannot make " FOLDER " in the store %s", text);
    else
        fd = followed_link_open(store_fd, FOLDER, FOLDER, O_RDONLY | O_DIRECTORY, error);
    close(store_fd);
    return fd >= 0 ? fd : error_prefix(error, "%s", text);
}

/* Whoever may read the folder can keep it locked. On a file system without locks the moment between reading and renaming is not
 * guarded. */
static int lock_claims(int folder, const struct activations_args *args, struct error *error)
{
    static const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000};
    uint64_t wait_ms = args->timeout_ms && args->timeout_ms < LONGEST_LOCK_MS ? args->timeout_ms : LONGEST_LOCK_MS;
    for (uint64_t waited_ms = 0; waited_ms <= wait_ms; waited_ms += LOCK_PAUSE_MS) {
        if (flock(folder, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            return 0;
        nanosleep(&pause, NULL);
    }
    return fail(error, ERROR_UNAVAILABLE, "CLAIMS_LOCKED",
                FOLDER " of the store stays locked by another process; see which one has it open");
}

/* -1 with errno. */
static int read_claim(int folder, const char *name, struct activation_claim *claim)
{
    char text[ACTIVATION_CLAIM_MAX_BYTES];
    *claim = (struct activation_claim){0};
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text) : -1;
    int failure = errno;
    if (fd >= 0)
        close(fd);
    errno = failure;
    if (length < 0)
        return -1;
    activation_claim_parse(text, (size_t)length, claim);
    return 0;
}

/* A file of its own beside the claims, to be linked or renamed to its place. */
static int write_claim(int folder, const struct activations_args *args, bool is_done, char fresh[NAME_CHARS],
                       struct error *error)
{
    size_t length;
    char *text = activation_claim_print(args->claim.owner, args->claim.lease_ms, is_done, &length, error);
    if (!text)
        return -1;
    snprintf(fresh, NAME_CHARS, ".new-%ld-%" PRIx64, (long)getpid(), (uint64_t)random());
    int fd = openat(folder, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    bool is_written = fd >= 0 && write(fd, text, length) == (ssize_t)length && fsync(fd) == 0;
    int failure = errno;
    free(text);
    if (fd >= 0)
        close(fd);
    if (is_written)
        return 0;
    unlinkat(folder, fresh, 0);
    return fail_errno(error, failure, "cannot write a claim");
}

/* --- taking --- */

/* Which units have a claim; NULL on error. */
static bool *list_claimed(int folder, uint64_t n_units, struct error *error)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    uint64_t unit;
    if (!directory) {
        fail_errno(error, errno, "cannot list " FOLDER);
        return NULL;
    }
    bool *claimed = memory_alloc_array(n_units + 1, sizeof *claimed);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (activation_claim_parse_name(entry->d_name, &unit) && unit < n_units)
            claimed[unit] = true;
    }
    closedir(directory);
    return claimed;
}

/* 1 = it is ours, 0 = somebody was quicker, -1 = an error. */
static int link_claim(int folder, const char *fresh, uint64_t unit, struct error *error)
{
    char name[NAME_CHARS];
    activation_claim_name(unit, name);
    if (linkat(folder, fresh, folder, name, 0) == 0)
        return fsync(folder) == 0 ? 1 : fail_errno(error, errno, "cannot write " FOLDER " to the disk");
    return errno == EEXIST ? 0 : fail_errno(error, errno, "cannot claim %s", name);
}

/* Of this moment: what was written before the lock was waited for may have passed. */
static int replace_claim(int folder, const struct activations_args *args, bool is_done, const char *name,
                         struct error *error)
{
    char fresh[NAME_CHARS];
    if (write_claim(folder, args, is_done, fresh, error) < 0)
        return -1;
    if (renameat(folder, fresh, folder, name) == 0)
        return 0;
    fail_errno(error, errno, "cannot write %s", name);
    unlinkat(folder, fresh, 0);
    return -1;
}

/* Under the lock: nobody else takes over, and who has it may only say that it is done, which is seen here. */
static int take_over(int folder, const struct activations_args *args, uint64_t unit, struct error *error)
{
    struct activation_claim claim;
    char name[NAME_CHARS];
    activation_claim_name(unit, name);
    if (read_claim(folder, name, &claim) < 0)
        return errno == ENOENT ? 0 : fail_errno(error, errno, "cannot read %s", name);
    if (claim.is_done || claim.until_ms > activation_claim_now_ms())
        return 0;
    return replace_claim(folder, args, false, name, error) < 0 ? -1 : 1;
}

/* 1 = *unit is taken over, 0 = nothing is left. */
static int take_passed(int folder, const struct activations_args *args, uint64_t *unit, struct error *error)
{
    int taken = 0;
    if (lock_claims(folder, args, error) < 0)
        return -1;
    for (uint64_t i = 0; i < args->claim.units && !taken; i++) {
        *unit = i;
        taken = take_over(folder, args, i, error);
    }
    flock(folder, LOCK_UN);
    return taken;
}

static int take_unit(int folder, const struct activations_args *args, uint64_t *unit, struct error *error)
{
    char fresh[NAME_CHARS];
    bool *claimed = list_claimed(folder, args->claim.units, error);
    if (!claimed || write_claim(folder, args, false, fresh, error) < 0) {
        free(claimed);
        return -1;
    }
    int taken = 0;
    for (uint64_t i = 0; i < args->claim.units && !taken; i++) {
        *unit = i;
        taken = claimed[i] ? 0 : link_claim(folder, fresh, i, error);
    }
    unlinkat(folder, fresh, 0);
    free(claimed);
    return taken ? taken : take_passed(folder, args, unit, error);
}

static int finish_unit(int folder, const struct activations_args *args, struct error *error)
{
    struct activation_claim claim;
    char name[NAME_CHARS];
    activation_claim_name(args->claim.done, name);
    if (lock_claims(folder, args, error) < 0)
        return -1;
    int failed = 0;
    if (read_claim(folder, name, &claim) < 0)
        failed = errno == ENOENT ? activation_claim_fail_nobody(args->claim.done, error)
                                 : fail_errno(error, errno, "cannot read %s", name);
    if (!failed && strcmp(claim.owner, args->claim.owner) != 0)
        failed = activation_claim_fail_owner(&claim, args->claim.done, error);
    if (!failed && !claim.is_done)
        failed = replace_claim(folder, args, true, name, error);
    flock(folder, LOCK_UN);
    return failed;
}

static int claim_on_disk(const struct activations_run *run, uint64_t *unit, struct error *error)
{
    const struct activations_args *args = run->args;
    int folder = open_claims(run->path, args, error), taken = 1;
    if (folder < 0)
        return -1;
    if (args->claim.done == ACTIVATIONS_UNSET)
        taken = take_unit(folder, args, unit, error);
    else if (finish_unit(folder, args, error) < 0)
        taken = -1;
    close(folder);
    return taken;
}

int activations_claim(struct activations_run *run, struct error *error)
{
    const struct activations_args *args = run->args;
    uint64_t unit = args->claim.done;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    srandom((unsigned)(now.tv_nsec ^ getpid()));
    if (args->claim.units != ACTIVATIONS_UNSET && args->claim.units > MAX_UNITS)
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_MANY_UNITS", "--units is at most %llu", MAX_UNITS);
    int taken = run->bucket ? activations_claim_in_bucket(run, &unit, error) : claim_on_disk(run, &unit, error);
    if (taken < 0)
        return -1;
    if (args->json && taken)
        printf("{\"unit\": %" PRIu64 "}\n", unit);
    else if (args->json)
        printf("{\"unit\": null}\n");
    else if (taken)
        printf("%" PRIu64 "\n", unit);
    return 0;
}
