/* Copies from files that lose their pages, in threads of any kind, and what happens to every other SIGBUS. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bus_guard.h"

enum { BYTES = 1 << 20, N_THREADS = 4, N_ROUNDS = 200 };

static struct sigaction ours; /* cmocka puts its own handler in its place for each test */

static void keep_ours(void)
{
    unsigned char byte = 1, copy;
    bus_guard_copy(&copy, &byte, 1);
    sigaction(SIGBUS, NULL, &ours);
}

static void use_ours(void **state)
{
    (void)state;
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
}

struct file {
    int fd;
    unsigned char *address;
};

static struct file open_file(void)
{
    struct file file = {.fd = memfd_create("test_bus_guard_copy", MFD_CLOEXEC)};
    assert_true(file.fd >= 0);
    assert_int_equal(ftruncate(file.fd, BYTES), 0);
    file.address = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
    assert_true(file.address != MAP_FAILED);
    memset(file.address, 0x5A, BYTES);
    return file;
}

static void close_file(struct file file)
{
    munmap(file.address, BYTES);
    close(file.fd);
}

TEST(a_copy_is_a_copy)
{
    struct file file = open_file();
    unsigned char *bytes = test_calloc(1, BYTES);
    assert_int_equal(bus_guard_copy(bytes, file.address, BYTES), 0);
    assert_memory_equal(bytes, file.address, BYTES);
    assert_int_equal(bus_guard_copy(bytes, file.address, 0), 0);
    test_free(bytes);
    close_file(file);
}

TEST(a_page_that_is_gone_ends_the_copy)
{
    struct file file = open_file();
    unsigned char *bytes = test_calloc(1, BYTES);
    use_ours(state);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ftruncate(file.fd, BYTES / 2), 0);
        assert_int_equal(bus_guard_copy(bytes, file.address, BYTES), -1);
        assert_int_equal(bus_guard_copy(bytes, file.address, BYTES / 2), 0);
        assert_int_equal(ftruncate(file.fd, BYTES), 0);
        assert_int_equal(bus_guard_copy(bytes, file.address, BYTES), 0);
    }
    test_free(bytes);
    close_file(file);
}

struct copier {
    pthread_t thread;
    const struct file *file;
    int n_wrong;
};

/* With every signal blocked, as threads of libraries have it. */
static void *copy_often(void *data)
{
    struct copier *copier = data;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    unsigned char *bytes = malloc(BYTES);
    for (int i = 0; i < N_ROUNDS; i++) {
        copier->n_wrong += bus_guard_copy(bytes, copier->file->address, BYTES / 4) != 0;
        bus_guard_copy(bytes, copier->file->address, BYTES); /* with luck */
    }
    free(bytes);
    return NULL;
}

TEST(threads_fail_one_by_one)
{
    struct file file = open_file();
    struct copier copiers[N_THREADS] = {{0}};
    use_ours(state);
    for (int i = 0; i < N_THREADS; i++) {
        copiers[i].file = &file;
        assert_int_equal(pthread_create(&copiers[i].thread, NULL, copy_often, &copiers[i]), 0);
    }
    for (int i = 0; i < N_ROUNDS; i++)
        assert_int_equal(ftruncate(file.fd, i % 2 ? BYTES : BYTES / 2), 0);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(copiers[i].thread, NULL);
        assert_int_equal(copiers[i].n_wrong, 0);
    }
    close_file(file);
}

enum death { DEATH_BY_TOUCH, DEATH_BY_DESTINATION, DEATH_BY_PROCESS };

static int die(enum death death)
{
    unsigned char byte;
    struct file file = open_file();
    bus_guard_copy(&byte, file.address, 1);
    if (death == DEATH_BY_PROCESS) {
        kill(getpid(), SIGBUS);
    } else if (ftruncate(file.fd, 0) == 0 && death == DEATH_BY_DESTINATION) {
        bus_guard_copy(file.address, &death, 1);
    } else {
        byte = *(volatile unsigned char *)file.address;
    }
    return 0;
}

/* Under a sanitizer the process ends by its report. */
TEST(every_other_bus_error_is_as_deadly_as_before)
{
    for (enum death death = DEATH_BY_TOUCH; death <= DEATH_BY_PROCESS; death++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            close(STDERR_FILENO);
            use_ours(state);
            _exit(die(death));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static int set_up_all_tests(void **state)
{
    keep_ours();
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
