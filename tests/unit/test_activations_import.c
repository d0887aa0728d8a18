/* How many shards are taken; what is in them is e2e/test_activation_shards.py's. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

#include "base/memory.h"
#include "client/cli/activations_commands.h"
#include "client/cli/backend.h"
#include "tests/support/shell.h"

static size_t n_made_up, n_told;

/* In place of the C library's: a folder that has one shard as often as a test wants. */
struct dirent *readdir(DIR *directory)
{
    static struct dirent entry;
    if (!n_made_up) {
        struct dirent *(*real)(DIR *) = (struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir");
        return real(directory);
    }
    snprintf(entry.d_name, sizeof entry.d_name, "shard_1.pkl");
    return n_told++ < n_made_up ? &entry : NULL;
}

/* The folder and the shard are opened once and kept: doing it for each of two million took twelve seconds. */
static struct {
    char name[16];
    int fd;
} opened[2];
static size_t n_opened;

int openat(int folder_fd, const char *name, int flags, ...)
{
    for (size_t i = 0; n_told && i < n_opened; i++)
        if (strcmp(opened[i].name, name) == 0)
            return opened[i].fd;
    int (*real)(int, const char *, int, ...) = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
    int fd = real(folder_fd, name, flags);
    if (n_told && n_opened < sizeof opened / sizeof *opened) {
        snprintf(opened[n_opened].name, sizeof opened->name, "%s", name);
        opened[n_opened++].fd = fd;
    }
    return fd;
}

int close(int fd)
{
    for (size_t i = 0; n_told && i < n_opened; i++)
        if (opened[i].fd == fd)
            return 0;
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    return real(fd);
}

static void a_million_shards_are_listed_and_with_one_more_nothing_is_imported(void **state)
{
    char folder[] = "/tmp/tc-import-XXXXXX", store[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(store, sizeof store, "%s/store", folder);
    shell("echo no pickle > %s/shard_1.pkl", folder);
    const char *operands[] = {store, folder};
    const struct activations_args args = {.operands = operands, .n_operands = 2};
    struct backend backend = {.deadline_ns = UINT64_MAX};
    struct activations_run run = {.args = &args, .path = store, .objects.backend = &backend};
    for (size_t more = 0; more < 2; more++) {
        struct error error;
        n_made_up = (1 << 20) + more;
        n_told = n_opened = 0;
        assert_int_equal(activations_import(&run, &error), -1);
        assert_int_equal(error.code, more ? ERROR_RESOURCE_EXHAUSTED : ERROR_INVALID_ARGUMENT); /* the first was opened */
        assert_int_equal(strcmp(error.reason, "TOO_MANY_SHARDS") == 0, more);
    }
    n_made_up = 0;
    shell("rm -r %s", folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_shards_are_listed_and_with_one_more_nothing_is_imported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
